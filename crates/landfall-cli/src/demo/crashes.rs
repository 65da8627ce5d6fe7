//! When to kill the world, and how.

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

/// The longest time between the moment at which a crash is due and the crash.
const WINDOW: Duration = Duration::from_millis(120);
/// Crashes in one run, however long it is.
const MOST: u32 = 50;
/// How long a world that was asked to stop may take to finish what it is doing.
const STOP: Duration = Duration::from_secs(20);

/// The crashes of one run: one in each slice of the work, so that placing, reserving, charging, the drain at the end
/// and the redrive are all hit, and at a random moment of it.
#[derive(Debug)]
pub(super) struct Crashes {
    /// Shares of the work after which the next ones are due, in order.
    due: VecDeque<f64>,
    random: StdRng,
}

impl Crashes {
    pub(super) fn plan(story: Story) -> Self {
        let mut random = StdRng::seed_from_u64(story.seed);
        let count = (8 + story.orders / 500).min(MOST);
        let due = (0..count).map(|slice| (f64::from(slice) + random.random::<f64>()) / f64::from(count)).collect();
        Self { due, random }
    }

    /// How long to wait before the crash that is due when this `share` of the work is done, if there is one.
    pub(super) fn due(&mut self, share: f64) -> Option<Duration> {
        self.due.pop_front_if(|due| *due <= share)?;
        Some(WINDOW.mul_f64(self.random.random()))
    }

    pub(super) fn are_over(&self) -> bool {
        self.due.is_empty()
    }
}

/// One life of the child process.
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
            // Ctrl-C is meant for the director, which ends the world in its own way.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Error::not_so(format!("the child process cannot be started: {error}")))?;
        Ok(Self { child })
    }

    /// SIGKILL: no handler runs, nothing is flushed, nobody says goodbye.
    pub(super) async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Fails if the world ended by itself, which it never should.
    pub(super) fn check(&mut self, folder: &Folder) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(ended(folder, &format!("ended by itself ({status})"))),
        }
    }

    /// Asks the world to stop by closing its stdin, and waits until it has.
    pub(super) async fn stop(mut self, folder: &Folder) -> Result<()> {
        drop(self.child.stdin.take());
        match tokio::time::timeout(STOP, self.child.wait()).await {
            Ok(status) if status.as_ref().is_ok_and(|status| status.success()) => Ok(()),
            Ok(status) => Err(ended(folder, &format!("did not stop as it should ({})", status?))),
            Err(_) => Err(ended(folder, &format!("did not stop within {} s", STOP.as_secs()))),
        }
    }
}

fn ended(folder: &Folder, how: &str) -> Box<dyn std::error::Error + Send + Sync> {
    let log = folder.world_log_path();
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    let last = text.lines().last().unwrap_or("it left no word");
    Error::not_so(format!("the child process {how}; its last words in {}: {last}", log.display())).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_at_least_five_crashes_spread_over_the_whole_run() {
        for seed in 0..100 {
            let mut crashes = Crashes::plan(Story { orders: 1000, seed });
            assert!(crashes.due.len() >= 5);
            assert!(crashes.due.iter().is_sorted());
            let longest = crashes.due.iter().zip(crashes.due.iter().skip(1)).map(|(a, b)| b - a).fold(0.0, f64::max);
            assert!(longest < 0.5, "half of the work goes on without a crash with seed {seed}");
            while !crashes.are_over() {
                assert!(crashes.due(1.0).is_some_and(|delay| delay <= WINDOW));
            }
            assert_eq!(crashes.due(1.0), None);
        }
    }
}
