//! One life of a worker process, as the test sees it: what it said, and how it ended.
#![allow(clippy::expect_used, reason = "a test whose world cannot be made has failed")]

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

/// How long anything that must happen may take on a machine that is busy with something else.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running worker. Dropping it kills it.
#[derive(Debug)]
pub struct Life {
    process: Process,
}

/// A life that is over.
#[derive(Debug)]
pub struct Death {
    pub status: ExitStatus,
    pub events: Vec<Event>,
    /// What it wrote to stderr.
    pub complaints: Vec<String>,
}

impl Life {
    pub fn begin(program: &Path, setup: &Setup) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg(serde_json::json!(setup).to_string());
        Self::spawn(command)
    }

    pub fn spawn(command: Command) -> Result<Self> {
        Ok(Self { process: Process::spawn(command)? })
    }

    /// Whether it has ended, for whatever reason.
    pub async fn is_over(&mut self) -> bool {
        self.process.wait(Duration::ZERO).await.is_ok()
    }

    /// How many of the things it said are like this.
    pub fn count(&self, like: impl Fn(&Event) -> bool) -> usize {
        self.process.stdout().iter().filter_map(|line| Event::parse(line)).filter(like).count()
    }

    pub fn has_complained(&self, words: &str) -> bool {
        self.process.stderr().iter().any(|line| line.contains(words))
    }

    /// Waits until its roles have begun.
    pub async fn ready(&self) {
        eventually(PATIENCE, "the worker is ready", async || self.count(|event| *event == Event::Ready) > 0).await;
    }

    /// Waits until it has fallen asleep at `failpoint`.
    pub async fn asleep_at(&self, failpoint: &Failpoint) {
        let words = failpoint.last_words();
        eventually(PATIENCE, &words, async || self.has_complained(&words)).await;
        // It says so right before. A signal of ours that came first would have it fall asleep once more when it goes on.
        self.process.stands_still().await.expect("it falls asleep");
    }

    /// SIGSTOP; returns when it stands still.
    pub async fn pause(&self) {
        self.process.pause().await.expect("a running worker can be paused");
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.process.resume().expect("a paused worker can be resumed");
    }

    /// SIGTERM; waits until it has ended.
    pub async fn stopped(self) -> Death {
        self.process.terminate().expect("a running worker can be told to stop");
        self.ended().await
    }

    /// SIGKILL after `lifetime`, unless it ends by itself before.
    pub async fn killed_after(mut self, lifetime: Duration) -> Death {
        match self.process.wait(lifetime).await {
            Ok(status) => self.buried(status),
            Err(_) => {
                let status = self.process.kill_9().await.expect("a running worker can be killed");
                self.buried(status)
            }
        }
    }

    /// Waits until it has ended by itself.
    pub async fn ended(mut self) -> Death {
        let status = self.process.wait(PATIENCE).await.expect("the worker ends");
        self.buried(status)
    }

    fn buried(self, status: ExitStatus) -> Death {
        let events = self.process.stdout().iter().filter_map(|line| Event::parse(line)).collect();
        Death { status, events, complaints: self.process.stderr() }
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
