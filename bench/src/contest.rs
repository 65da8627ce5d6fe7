//! Compares two or more ways of doing the same work, on a machine that is never quite idle.
//!
//! The contestants alternate (A B C, A B C, …) and all samples have the same length. A ratio compares samples of one
//! round, because the machine was in about the same state. The table shows the median over the rounds.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::task::JoinSet;

use crate::Result;

/// Measured rounds; an odd number has a median. One round before them warms up caches, connections and plans, and is
/// dropped.
const ROUNDS: u32 = 7;

/// One way of doing the work that is measured.
#[async_trait]
pub(crate) trait Contestant: Send {
    /// Works for about `length` on fresh data, and fails if the stored result does not match the count. Preparation and
    /// checks are not part of the measured time.
    async fn sample(&mut self, length: Duration) -> Result<Sample>;
}

/// The result of one measurement of one contestant.
pub(crate) enum Sample {
    /// The number of operations, and how long they took together.
    Rate { operations: u64, elapsed: Duration },
    /// How long each operation took.
    Latencies(Vec<Duration>),
}

/// Measures all contestants alternately, for `total` each. Returns the samples of each, in the order of `contestants`.
#[allow(clippy::print_stderr, reason = "progress on a terminal")]
pub(crate) async fn compare(
    name: &str,
    total: Duration,
    contestants: &mut [Box<dyn Contestant + '_>],
) -> Result<Vec<Vec<Sample>>> {
    let started = Instant::now();
    let length = total / ROUNDS;
    let mut samples: Vec<Vec<Sample>> = contestants.iter().map(|_| Vec::new()).collect();
    for round in 0..=ROUNDS {
        for (contestant, samples) in contestants.iter_mut().zip(&mut samples) {
            flush_disk();
            let sample = contestant.sample(length).await.map_err(|error| format!("{name}: {error}"))?;
            if round > 0 {
                samples.push(sample);
            }
        }
    }
    eprintln!("{name}: done in {:.1} s", started.elapsed().as_secs_f64());
    Ok(samples)
}

/// Flushes writes left over from the previous sample (removed files, dirty pages), so that they do not slow down the
/// next one. Without a `sync` command the samples are a little less fair.
fn flush_disk() {
    let _ = std::process::Command::new("sync").status();
}

/// The number of operations to prepare for a sample of a given length, learnt from the previous samples.
///
/// A contestant that consumes prepared work cannot stop when the time is up, so it gets about as much as fits.
pub(crate) struct Pace {
    per_second: f64,
}

impl Pace {
    /// A low first guess is safe: it only shortens the warm-up sample.
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

/// Runs `operation` in a loop in `clients` tasks until the time is up. Returns how often it ran.
pub(crate) async fn repeat<F, O>(clients: usize, length: Duration, operation: F) -> Result<Sample>
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
    Ok(Sample::Rate { operations, elapsed: started.elapsed() })
}

/// Fails unless the two counts are equal.
pub(crate) fn ensure_equal(what: &str, found: u64, expected: u64) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: found {found}, expected {expected}; the measurement is invalid").into())
}
