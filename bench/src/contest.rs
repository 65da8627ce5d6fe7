//! How two or more ways of doing the same thing are compared on a machine that is never quite idle.
//!
//! They take turns (A B C, A B C, …), each turn as long as the others'. A ratio is computed from the turns of one
//! round, which saw about the same machine, and the median over the rounds is what the table shows.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::task::JoinSet;

use crate::Result;

/// Turns that count, an odd number so that there is one in the middle. One more before them warms up caches,
/// connections and plans, and is dropped.
const ROUNDS: u32 = 7;

/// One way of doing the thing that is measured.
#[async_trait]
pub(crate) trait Contestant: Send {
    /// Works for about `length`, on fresh data, and fails if what was done is not what was counted. Preparing and
    /// checking are not part of the time it answers with.
    async fn turn(&mut self, length: Duration) -> Result<Turn>;
}

/// What came of one turn.
pub(crate) enum Turn {
    /// So many operations took this long together.
    Rate { operations: u64, elapsed: Duration },
    /// How long each single operation took.
    Latencies(Vec<Duration>),
}

/// Lets the contestants take turns for `total` each, and answers with everybody's turns in their order.
#[allow(clippy::print_stderr, reason = "progress is for the person who waits")]
pub(crate) async fn hold(
    name: &str,
    total: Duration,
    contestants: &mut [Box<dyn Contestant + '_>],
) -> Result<Vec<Vec<Turn>>> {
    let started = Instant::now();
    let length = total / ROUNDS;
    let mut turns: Vec<Vec<Turn>> = contestants.iter().map(|_| Vec::new()).collect();
    for round in 0..=ROUNDS {
        for (contestant, turns) in contestants.iter_mut().zip(&mut turns) {
            settle();
            let turn = contestant.turn(length).await.map_err(|error| format!("{name}: {error}"))?;
            if round > 0 {
                turns.push(turn);
            }
        }
    }
    eprintln!("{name}: done in {:.1} s", started.elapsed().as_secs_f64());
    Ok(turns)
}

/// Lets the disk finish what the turn before left behind (files that were removed, pages that were not written), so that
/// nobody pays for somebody else. Where there is no such command the turns are a little less fair.
fn settle() {
    let _ = std::process::Command::new("sync").status();
}

/// How many operations to prepare for a turn of a given length, learnt from the turns before.
///
/// What consumes prepared work cannot stop when the time is up; it is given about as much as fits.
pub(crate) struct Pace {
    per_second: f64,
}

impl Pace {
    /// A low first guess: it only makes the dropped turn a short one.
    pub(crate) fn guess(per_second: f64) -> Self {
        Self { per_second }
    }

    pub(crate) fn operations(&self, length: Duration) -> u64 {
        (self.per_second * length.as_secs_f64()).max(1.0) as u64
    }

    pub(crate) fn learn(&mut self, operations: u64, elapsed: Duration) {
        self.per_second = operations as f64 / elapsed.as_secs_f64().max(1e-6);
    }
}

/// Lets `clients` tasks repeat `operation` until the time is up, and answers with how often it was done.
pub(crate) async fn repeat<F, O>(clients: usize, length: Duration, operation: F) -> Result<Turn>
where
    F: Fn() -> O + Clone + Send + 'static,
    O: Future<Output = Result<()>> + Send,
{
    let started = Instant::now();
    let mut tasks = JoinSet::<Result<u64>>::new();
    for _ in 0..clients {
        let operation = operation.clone();
        tasks.spawn(async move {
            let mut count = 0_u64;
            while started.elapsed() < length {
                operation().await?;
                count += 1;
            }
            Ok(count)
        });
    }
    let mut operations = 0;
    while let Some(count) = tasks.join_next().await {
        operations += count??;
    }
    Ok(Turn::Rate { operations, elapsed: started.elapsed() })
}

/// Fails with a sentence unless the two counts are the same.
pub(crate) fn ensure_equal(what: &str, found: u64, expected: u64) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: {found} were found and {expected} were expected; the figures would be worthless").into())
}
