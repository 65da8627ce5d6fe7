//! One life of a worker process, as the test sees it: what it said, and how it ended.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use landfall_testkit::eventually;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinHandle;

use crate::failpoint::Failpoint;
use crate::history::Event;
use crate::setup::Setup;

/// How long anything that must happen may take on a machine that is busy with something else.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running worker. Dropping it kills it; so does the end of the test's process, in whatever way.
#[derive(Debug)]
pub struct Life {
    child: Child,
    /// The worker ends when this is closed. Kept apart from the child, which closes its own when it is waited for.
    _leash: Option<ChildStdin>,
    said: Lines,
    complained: Lines,
    readers: [JoinHandle<()>; 2],
}

type Lines = Arc<Mutex<Vec<String>>>;

/// A life that is over.
#[derive(Debug)]
pub struct Death {
    pub status: ExitStatus,
    pub events: Vec<Event>,
    pub complaints: Vec<String>,
}

impl Life {
    pub fn begin(program: &Path, setup: &Setup) -> std::io::Result<Self> {
        let mut child = Command::new(program)
            .arg(serde_json::to_string(setup)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (said, complained) = (Lines::default(), Lines::default());
        let readers = [
            tokio::spawn(listen(child.stdout.take(), said.clone())),
            tokio::spawn(listen(child.stderr.take(), complained.clone())),
        ];
        Ok(Self { _leash: child.stdin.take(), child, said, complained, readers })
    }

    pub fn has_said(&self, event: &Event) -> bool {
        self.count(|said| said == event) > 0
    }

    /// How many of the things it said are like this.
    pub fn count(&self, like: impl Fn(&Event) -> bool) -> usize {
        lock(&self.said).iter().filter_map(|line| Event::parse(line)).filter(like).count()
    }

    pub fn has_complained(&self, words: &str) -> bool {
        lock(&self.complained).iter().any(|line| line.contains(words))
    }

    /// Waits until its roles have begun.
    pub async fn ready(&self) {
        eventually(PATIENCE, "the worker is ready", async || self.has_said(&Event::Ready)).await;
    }

    /// Waits until it has fallen asleep at `failpoint`.
    pub async fn asleep_at(&self, failpoint: &Failpoint) {
        let words = failpoint.last_words();
        eventually(PATIENCE, &words, async || self.has_complained(&words) && self.is_stopped()).await;
    }

    /// Whether the kernel holds it after SIGSTOP.
    fn is_stopped(&self) -> bool {
        let stat = self.child.id().and_then(|id| std::fs::read_to_string(format!("/proc/{id}/stat")).ok());
        stat.as_deref().and_then(|stat| stat.rsplit_once(") ")).is_some_and(|(_, state)| state.starts_with('T'))
    }

    /// Sends `signal`. One that has ended meanwhile does not mind.
    pub fn signal(&self, signal: Signal) {
        if let Some(id) = self.child.id() {
            let _ = kill(Pid::from_raw(id as i32), signal);
        }
    }

    /// Lets it live for `lifetime`, unless it ends before, and kills it with SIGKILL.
    pub async fn killed_after(mut self, lifetime: Duration) -> Death {
        if tokio::time::timeout(lifetime, self.child.wait()).await.is_err() {
            self.signal(Signal::SIGKILL);
        }
        self.ended().await
    }

    /// Waits until it ends by itself or by a signal that was sent, and until everything it said was heard.
    pub async fn ended(mut self) -> Death {
        let status = match tokio::time::timeout(PATIENCE, self.child.wait()).await {
            Ok(Ok(status)) => status,
            Ok(Err(error)) => panic!("the worker cannot be waited for: {error}"),
            Err(_) => panic!("the worker did not end within {PATIENCE:?}; it complained: {:?}", lock(&self.complained)),
        };
        for reader in &mut self.readers {
            // A reader ends with its pipe, which the worker alone had open.
            let _ = reader.await;
        }
        let events = lock(&self.said).iter().filter_map(|line| Event::parse(line)).collect();
        let complaints = std::mem::take(&mut *lock(&self.complained));
        Death { status, events, complaints }
    }
}

impl Death {
    pub fn was_killed(&self) -> bool {
        self.status.signal() == Some(Signal::SIGKILL as i32)
    }

    /// Killed at this boundary, by itself.
    pub fn was_at(&self, failpoint: &Failpoint) -> bool {
        self.was_killed() && self.complaints.contains(&failpoint.last_words())
    }
}

async fn listen(pipe: Option<impl AsyncRead + Unpin>, lines: Lines) {
    let Some(pipe) = pipe else { return };
    let mut reader = BufReader::new(pipe).lines();
    while let Ok(Some(line)) = reader.next_line().await {
        lock(&lines).push(line);
    }
}

fn lock(lines: &Lines) -> std::sync::MutexGuard<'_, Vec<String>> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}
