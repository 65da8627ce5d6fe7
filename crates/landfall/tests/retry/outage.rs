//! A dependency that fails for thirty seconds under load, second by second.
//!
//! A hundred messages arrive each second for ninety seconds. Each calls the dependency as a handler does: a failed call
//! is retried, a call that was not made waits. From second 20 to second 50 every call fails.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall::retry::{BudgetOptions, Dependency, Failed, Jitter, Options, Repeat, RetryPolicy};
use landfall::{Backoff, Failure, Verdict};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::fixture::SECOND;

const RATE: u32 = 100;
const OUTAGE: std::ops::Range<u64> = 20..50;
const END: u64 = 90;
const BUDGET: BudgetOptions = BudgetOptions { ratio: 0.1, floor: 10, cap: 1000, window: Duration::from_secs(10) };
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(100), cap: Duration::from_secs(10), max_attempts: 8 };

/// The time of each event in milliseconds.
#[derive(Debug, Default)]
struct Record {
    successes: Vec<u64>,
    failures: Vec<u64>,
    retries: Vec<u64>,
    parked: u32,
}

async fn call(started: Instant, attempt: u32, record: &Mutex<Record>) -> Result<(), Failure> {
    let now = started.elapsed().as_millis() as u64;
    if attempt > 1 {
        record.lock().unwrap().retries.push(now);
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    if OUTAGE.contains(&(now / 1000)) {
        record.lock().unwrap().failures.push(now);
        return Err(Failure::from_status(500, None).unwrap());
    }
    record.lock().unwrap().successes.push(now);
    Ok(())
}

/// Retries one message as a consumer does.
async fn settle(dependency: Dependency, started: Instant, record: Arc<Mutex<Record>>) {
    let policy = RetryPolicy { jitter: Jitter::Full, ..BACKOFF.into() };
    let (mut failures, mut waits) = (0, 0);
    loop {
        let failure = match dependency.attempt(failures + 1, || call(started, failures + 1, &record)).await {
            Ok(()) => return,
            Err(failure) => failure,
        };
        let delay = match failure.verdict {
            Verdict::Retry => {
                failures += 1;
                policy.delay_after(Failed { attempts: failures, ..Failed::default() }, rand::random())
            }
            Verdict::Wait => {
                waits += 1;
                let unbounded = Backoff { max_attempts: u32::MAX, ..BACKOFF };
                let waited = Failed { attempts: waits, retry_after: failure.retry_after, ..Failed::default() };
                RetryPolicy { jitter: Jitter::Full, ..unbounded.into() }.delay_after(waited, rand::random())
            }
            Verdict::Park => None,
        };
        let Some(delay) = delay else {
            record.lock().unwrap().parked += 1;
            return;
        };
        tokio::time::sleep(delay).await;
    }
}

async fn run() -> (Record, u64) {
    let options =
        Options { budget: BUDGET, concurrency: 64, waiting: 10_000, repeat: Repeat::Safe, ..Options::default() };
    let (dependency, started) = (Dependency::new("gateway", options).unwrap(), Instant::now());
    let record = Arc::new(Mutex::new(Record::default()));
    let mut messages = JoinSet::new();
    for number in 0..RATE * END as u32 {
        messages.spawn(settle(dependency.clone(), started, record.clone()));
        tokio::time::sleep_until(started + SECOND / RATE * (number + 1)).await;
    }
    messages.join_all().await;
    let record = Arc::try_unwrap(record).unwrap().into_inner().unwrap();
    (record, started.elapsed().as_secs())
}

fn within(times: &[u64], from: u64, to: u64) -> usize {
    times.iter().filter(|time| (from..to).contains(time)).count()
}

#[tokio::test(start_paused = true)]
async fn outage_keeps_retries_within_budget_and_drains_afterwards() {
    let (record, ended) = run().await;
    assert_eq!(
        (record.successes.len() as u64, record.parked),
        (u64::from(RATE) * END, 0),
        "every message takes effect"
    );

    for (earlier, time) in record.retries.iter().enumerate() {
        let from = time.saturating_sub(9_999);
        let retries = record.retries[..=earlier].iter().filter(|retry| **retry >= from).count();
        // A success counts when the call returns.
        let successes = within(&record.successes, from.saturating_sub(20), time + 1);
        let most = (BUDGET.ratio * successes as f64) as usize + BUDGET.floor as usize;
        assert!(retries <= most, "at {time} ms there were {retries} retries in ten seconds, and {successes} successes");
    }

    let tried = within(&record.failures, 20_000, 50_000);
    let arrived = (OUTAGE.end - OUTAGE.start) as usize * RATE as usize;
    // For five seconds, until half of the last ten failed; then only probes are made.
    assert!(tried < arrived / 4, "{tried} calls reached the failed dependency, for {arrived} messages");
    assert!(within(&record.successes, 50_000, 85_000) > 6_000, "the backlog drained while new messages came");
    // A failed message waits for retry budget, which the successes of others earn.
    assert!(ended < END + 30, "it took until second {ended}");
}

/// The counterexample: without a breaker and a budget every message is retried at full rate.
#[tokio::test(start_paused = true)]
async fn without_breaker_and_budget_calls_multiply() {
    let dependency = crate::fixture::options();
    let dependency = Dependency::new("gateway", Options { concurrency: 64, waiting: 10_000, ..dependency }).unwrap();
    let (record, started) = (Arc::new(Mutex::new(Record::default())), Instant::now());
    tokio::time::sleep_until(started + SECOND * 20).await;
    let messages: JoinSet<_> = (0..100).map(|_| settle(dependency.clone(), started, record.clone())).collect();
    messages.join_all().await;
    assert!(record.lock().unwrap().failures.len() > 300);
}
