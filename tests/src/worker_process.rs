//! A worker process as the test sees it: its output and its exit.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use landfall::Result;
use landfall_testkit::{Process, eventually};
use nix::sys::signal::Signal;
use tokio::process::Command;

use crate::failpoint::Failpoint;
use crate::history::Event;
use crate::setup::Setup;

/// A limit for every wait, even on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A running worker process. Dropping it kills it.
#[derive(Debug)]
pub struct WorkerProcess {
    process: Process,
}

/// A worker process that has exited.
#[derive(Debug)]
pub struct WorkerExit {
    pub status: ExitStatus,
    pub events: Vec<Event>,
    /// The lines it wrote to stderr.
    pub stderr: Vec<String>,
}

impl WorkerProcess {
    pub fn start(program: &Path, setup: &Setup) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg(serde_json::json!(setup).to_string());
        Self::spawn(command)
    }

    pub fn spawn(command: Command) -> Result<Self> {
        Ok(Self { process: Process::spawn(command)? })
    }

    /// Whether the process has exited, for whatever reason.
    pub async fn has_exited(&mut self) -> bool {
        self.process.wait(Duration::ZERO).await.is_ok()
    }

    /// The number of its events that match.
    pub fn count(&self, matches: impl Fn(&Event) -> bool) -> usize {
        self.process.stdout().iter().filter_map(|line| Event::parse(line)).filter(matches).count()
    }

    pub fn has_logged(&self, text: &str) -> bool {
        self.process.stderr().iter().any(|line| line.contains(text))
    }

    /// The first line on stderr that begins with `prefix`.
    pub fn first_logged(&self, prefix: &str) -> Option<String> {
        self.process.stderr().into_iter().find(|line| line.starts_with(prefix))
    }

    /// The last lines on stderr.
    pub fn last_logged(&self, lines: usize) -> Vec<String> {
        let all = self.process.stderr();
        all[all.len().saturating_sub(lines)..].to_vec()
    }

    /// Waits until its roles have started.
    pub async fn ready(&self) {
        eventually(TIMEOUT, "the worker is ready", async || self.count(|event| *event == Event::Ready) > 0).await;
    }

    /// Waits until the process has stopped at `failpoint`.
    pub async fn wait_until_stopped_at(&self, failpoint: &Failpoint) {
        let announcement = failpoint.announcement();
        eventually(TIMEOUT, &announcement, async || self.has_logged(&announcement)).await;
        // The announcement precedes the signal. A SIGCONT before the SIGSTOP would have no effect.
        self.process.wait_until_stopped().await.expect("the worker stops at the failpoint");
    }

    /// Sends SIGSTOP and waits until the process has stopped.
    pub async fn pause(&self) {
        self.process.pause().await.expect("a running worker can be paused");
    }

    /// Sends SIGCONT.
    pub fn resume(&self) {
        self.process.resume().expect("a paused worker can be resumed");
    }

    /// Sends SIGTERM and waits for the exit.
    pub async fn terminate(self) -> WorkerExit {
        self.process.terminate().expect("a running worker can be terminated");
        self.wait().await
    }

    /// Sends SIGKILL after `lifetime`, unless the process exits before.
    pub async fn kill_after(mut self, lifetime: Duration) -> WorkerExit {
        match self.process.wait(lifetime).await {
            Ok(status) => self.into_exit(status),
            Err(_) => {
                let status = self.process.kill_9().await.expect("a running worker can be killed");
                self.into_exit(status)
            }
        }
    }

    /// Waits for the exit.
    pub async fn wait(mut self) -> WorkerExit {
        let status = self.process.wait(TIMEOUT).await.expect("the worker exits in time");
        self.into_exit(status)
    }

    fn into_exit(self, status: ExitStatus) -> WorkerExit {
        let events = self.process.stdout().iter().filter_map(|line| Event::parse(line)).collect();
        WorkerExit { status, events, stderr: self.process.stderr() }
    }
}

impl WorkerExit {
    pub fn was_killed(&self) -> bool {
        self.status.signal() == Some(Signal::SIGKILL as i32)
    }

    /// Whether the process killed itself at this failpoint.
    pub fn was_killed_at(&self, failpoint: &Failpoint) -> bool {
        self.was_killed() && self.stderr.contains(&failpoint.announcement())
    }
}
