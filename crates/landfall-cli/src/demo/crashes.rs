//! The crash plan, and the child process it kills.

use std::collections::VecDeque;
use std::process::Stdio;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::process::{Child, Command};

use super::Result;
use super::folder::Folder;
use super::story::Story;
use crate::error::Error;

/// The longest random delay between the moment a crash is due and the crash.
const WINDOW: Duration = Duration::from_millis(120);
/// Upper bound for the crashes of one run.
const MAX_CRASHES: u32 = 50;
/// Time limit for a graceful stop of the services.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// The crashes of one run: one at a random moment in each slice of the work, so that placing, reserving, charging, the
/// redrive and the final drain are all hit.
#[derive(Debug)]
pub(super) struct Crashes {
    /// Shares of the work after which the next crashes are due, ascending.
    due: VecDeque<f64>,
    random: StdRng,
}

impl Crashes {
    pub(super) fn plan(story: Story) -> Self {
        let mut random = StdRng::seed_from_u64(story.seed);
        let count = (8 + story.orders / 500).min(MAX_CRASHES);
        let due = (0..count).map(|slice| (f64::from(slice) + random.random::<f64>()) / f64::from(count)).collect();
        Self { due, random }
    }

    /// Returns the delay before the crash that is due at this `share` of the work, if one is.
    pub(super) fn due(&mut self, share: f64) -> Option<Duration> {
        self.due.pop_front_if(|due| *due <= share)?;
        Some(WINDOW.mul_f64(self.random.random()))
    }

    pub(super) fn are_over(&self) -> bool {
        self.due.is_empty()
    }
}

/// One run of the child process.
#[derive(Debug)]
pub(super) struct World {
    child: Child,
}

impl World {
    pub(super) fn start(folder: &Folder, life: u64) -> Result<Self> {
        let Story { orders, seed } = folder.story();
        let child = Command::new(std::env::current_exe()?)
            .arg("demo-world")
            .arg("--data")
            .arg(folder.path())
            .args(["--orders", &orders.to_string(), "--seed", &seed.to_string(), "--life", &life.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(folder.world_log()?)
            // In its own process group, Ctrl-C reaches only the director, which then stops the child.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Error::failed(format!("cannot start the child process: {error}")))?;
        Ok(Self { child })
    }

    /// Kills the child with SIGKILL: no handler runs, and nothing is flushed.
    pub(super) async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Fails if the child exited on its own, which it never should.
    pub(super) fn check(&mut self, folder: &Folder) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(exit_error(folder, &format!("exited unexpectedly ({status})"))),
        }
    }

    /// Stops the child gracefully by closing its stdin, and waits for its exit.
    pub(super) async fn stop(mut self, folder: &Folder) -> Result<()> {
        drop(self.child.stdin.take());
        match tokio::time::timeout(STOP_TIMEOUT, self.child.wait()).await {
            Ok(status) if status.as_ref().is_ok_and(|status| status.success()) => Ok(()),
            Ok(status) => Err(exit_error(folder, &format!("failed during shutdown ({})", status?))),
            Err(_) => Err(exit_error(folder, &format!("did not stop within {} s", STOP_TIMEOUT.as_secs()))),
        }
    }
}

fn exit_error(folder: &Folder, how: &str) -> Box<dyn std::error::Error + Send + Sync> {
    let log = folder.world_log_path();
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    let last = text.lines().last().unwrap_or("(the log is empty)");
    Error::failed(format!("the child process {how}; last line of {}: {last}", log.display())).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_least_five_crashes_are_spread_over_the_run() {
        for seed in 0..100 {
            let mut crashes = Crashes::plan(Story { orders: 1000, seed });
            assert!(crashes.due.len() >= 5);
            assert!(crashes.due.iter().is_sorted());
            let longest = crashes.due.iter().zip(crashes.due.iter().skip(1)).map(|(a, b)| b - a).fold(0.0, f64::max);
            assert!(longest < 0.5, "half of the work runs without a crash with seed {seed}");
            while !crashes.are_over() {
                assert!(crashes.due(1.0).is_some_and(|delay| delay <= WINDOW));
            }
            assert_eq!(crashes.due(1.0), None);
        }
    }
}
