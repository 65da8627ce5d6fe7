//! A child process under test: wait for its output, pause, resume, stop and kill it.

mod output;
pub(crate) mod tree;

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use landfall_core::{Error, ErrorKind, Result};
use nix::sys::signal::Signal;
use tokio::process::{Child, Command};

use output::Output;

/// A running child process, killed when dropped.
///
/// Its output is kept: [`Process::stdout`] and [`Process::stderr`] return it, and errors contain the last lines.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use landfall_testkit::Process;
///
/// let mut command = tokio::process::Command::new("sh");
/// command.args(["-c", "echo ready on port 7; exec sleep 60"]);
/// let mut child = Process::spawn(command).unwrap();
/// let line = child.wait_for_line(Duration::from_secs(5), |line| line.starts_with("ready")).await.unwrap();
/// assert_eq!(line, "ready on port 7");
/// child.pause().await.unwrap();
/// child.resume().unwrap();
/// child.kill_9().await.unwrap();
/// # });
/// ```
#[derive(Debug)]
pub struct Process {
    name: String,
    id: i32,
    child: Child,
    stdout: Output,
    stderr: Output,
    /// How many lines of stdout earlier waits have consumed.
    seen: usize,
}

impl Process {
    /// Starts `command` and captures its stdout and stderr; stdin stays as configured. Requires a tokio runtime.
    pub fn spawn(mut command: Command) -> Result<Self> {
        let name = command.as_std().get_program().to_string_lossy().into_owned();
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command
            .spawn()
            .map_err(|error| Error::new(ErrorKind::Unavailable, format!("cannot start {name}")).with_source(error))?;
        let id = child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or_default();
        let (stdout, stderr) = (Output::collect(child.stdout.take()), Output::collect(child.stderr.take()));
        Ok(Self { name, id, child, stdout, stderr, seen: 0 })
    }

    /// Returns the process id.
    pub fn id(&self) -> i32 {
        self.id
    }

    /// Waits for the next line on stdout that matches, after the line of the previous wait.
    ///
    /// Fails if stdout ends or `within` elapses first.
    pub async fn wait_for_line(&mut self, within: Duration, matches: impl Fn(&str) -> bool) -> Result<String> {
        let waiting = self.stdout.find(self.seen, matches);
        match tokio::time::timeout(within, waiting).await {
            Ok(Some((index, line))) => {
                self.seen = index + 1;
                Ok(line)
            }
            Ok(None) => {
                self.wait_for_output_end().await;
                Err(self.error(ErrorKind::NotFound, "ended its output before the expected line"))
            }
            Err(_) => {
                Err(self.error(ErrorKind::NotFound, &format!("did not print the expected line within {within:?}")))
            }
        }
    }

    /// Waits until the process exits; fails after `within`.
    pub async fn wait(&mut self, within: Duration) -> Result<ExitStatus> {
        match tokio::time::timeout(within, self.child.wait()).await {
            Ok(Ok(status)) => {
                self.wait_for_output_end().await;
                Ok(status)
            }
            Ok(Err(error)) => Err(self.error(ErrorKind::Internal, "cannot be waited for").with_source(error)),
            Err(_) => Err(self.error(ErrorKind::Internal, &format!("is still running after {within:?}"))),
        }
    }

    /// Kills the process with SIGKILL and waits until it is gone.
    pub async fn kill_9(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::SIGKILL)?;
        self.wait(Duration::from_secs(30)).await
    }

    /// Asks the process to stop with SIGTERM.
    pub fn terminate(&self) -> Result<()> {
        self.signal(Signal::SIGTERM)
    }

    /// Sends SIGTERM and waits until the process exits; fails after `within`.
    pub async fn stop(&mut self, within: Duration) -> Result<ExitStatus> {
        self.terminate()?;
        self.wait(within).await
    }

    /// Stops the process with SIGSTOP, its connections open, and returns once every thread is stopped.
    pub async fn pause(&self) -> Result<()> {
        tree::pause(&[self.id]).await
    }

    /// Waits until every thread is stopped, as after a SIGSTOP that the process sends to itself.
    pub async fn wait_until_stopped(&self) -> Result<()> {
        tree::wait_until_stopped(&[self.id]).await
    }

    /// Resumes a paused process with SIGCONT.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// Returns the lines printed to stdout so far.
    pub fn stdout(&self) -> Vec<String> {
        self.stdout.lines()
    }

    pub fn stderr(&self) -> Vec<String> {
        self.stderr.lines()
    }

    /// Waits for output that is still in the pipes after the exit. Bounded, because a grandchild may keep a pipe open.
    async fn wait_for_output_end(&self) {
        let both = async { tokio::join!(self.stdout.ended(), self.stderr.ended()) };
        let _ = tokio::time::timeout(Duration::from_secs(10), both).await;
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        // After a wait, the operating system may have reused the process id.
        match self.child.id() {
            Some(_) => tree::signal(&[self.id], signal),
            None => Err(self.error(ErrorKind::Conflict, "has already exited")),
        }
    }

    fn error(&self, kind: ErrorKind, what: &str) -> Error {
        let (stdout, stderr) = (self.stdout.tail(), self.stderr.tail());
        Error::new(kind, format!("process {} ({}) {what}; stdout: {stdout}; stderr: {stderr}", self.id, self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_secs(20);

    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::spawn(command).unwrap()
    }

    #[tokio::test]
    async fn lines_are_matched_in_order_and_output_is_kept() {
        let mut child = shell("echo one; echo two; echo oops >&2; echo one again; printf unfinished");
        let one = |line: &str| line.starts_with("one");
        assert_eq!(child.wait_for_line(BOUND, one).await.unwrap(), "one");
        assert_eq!(child.wait_for_line(BOUND, one).await.unwrap(), "one again");
        let error = child.wait_for_line(BOUND, one).await.unwrap_err();
        assert!(error.to_string().contains("oops"), "{error}");
        assert!(child.wait(BOUND).await.unwrap().success());
        assert_eq!(child.stdout(), ["one", "two", "one again", "unfinished"]);
        assert_eq!(child.stderr(), ["oops"]);
    }

    #[tokio::test]
    async fn missing_line_times_out() {
        let mut child = shell("exec sleep 60");
        let error = child.wait_for_line(Duration::from_millis(50), |_| true).await.unwrap_err();
        assert!(error.to_string().contains("within 50ms"), "{error}");
        assert!(child.wait(Duration::from_millis(50)).await.is_err());
    }

    #[tokio::test]
    async fn paused_child_is_stopped_until_resumed() {
        let mut child = shell("while read -r line; do echo \"$line\"; done < /dev/zero");
        child.pause().await.unwrap();
        assert!(tree::is_stopped(child.id()));
        child.resume().unwrap();
        crate::eventually(BOUND, "the child resumes", async || !tree::is_stopped(child.id())).await;
        child.kill_9().await.unwrap();
    }

    #[tokio::test]
    async fn child_cleans_up_on_sigterm_but_not_on_sigkill() {
        let script = "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.01; done";
        let mut child = shell(script);
        child.wait_for_line(BOUND, |line| line == "ready").await.unwrap();
        assert_eq!(child.stop(BOUND).await.unwrap().code(), Some(7));
        child.wait_for_line(BOUND, |line| line == "bye").await.unwrap();
        assert_eq!(child.terminate().unwrap_err().kind(), ErrorKind::Conflict);

        let mut child = shell(script);
        child.wait_for_line(BOUND, |line| line == "ready").await.unwrap();
        assert_eq!(child.kill_9().await.unwrap().code(), None, "ended by a signal");
        assert_eq!(child.stdout(), ["ready"]);
    }

    #[tokio::test]
    async fn dropped_child_is_killed() {
        let child = shell("exec sleep 60");
        let id = child.id();
        drop(child);
        crate::eventually(BOUND, "the child is gone", async || !tree::is_alive(id)).await;
    }
}
