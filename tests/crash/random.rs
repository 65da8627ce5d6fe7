//! Random kills of a worker that also owns the embedded log. The soak kills processes on every database, but its broker
//! runs in the test and stays alive.
//!
//! A worker with all roles runs for a random time: mostly long enough to take over the previous leases and do some
//! work, sometimes only long enough to open its files. Some messages fail once, others are parked and redriven. In the
//! end the result must be the same as without kills.

use std::time::Duration;

use landfall_system_tests::Harness;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::WORKER;

const KILLS: u32 = 120;

#[tokio::test]
async fn sqlite_run_is_clean_after_120_kills() {
    let seed = seed();
    let mut harness = Harness::sqlite(WORKER, seed).await;
    let mut random = StdRng::seed_from_u64(seed);
    for _ in 0..KILLS {
        let worker = harness.start();
        let lifetime =
            if random.random_bool(0.2) { random.random_range(0..150) } else { random.random_range(150..700) };
        let exit = worker.kill_after(Duration::from_millis(lifetime)).await;
        assert!(exit.was_killed(), "the worker exited before the kill: {} {:?}", exit.status, exit.stderr);
        harness.record_exit(exit);
    }
    harness.drain().await;
    let result = harness.check().await;
    println!("{result}");
    result.assert_clean();
    // A run without rollbacks, unanswered commits and redrives would prove nothing.
    assert!(result.rolled_back > 0 && result.unanswered_committed > 0, "{result}");
    assert!(harness.count_redriven().await > 0);
}

/// A new seed each time, printed by the harness; `LANDFALL_SEED` repeats a run, as far as scheduling allows.
fn seed() -> u64 {
    match std::env::var("LANDFALL_SEED") {
        Ok(seed) => seed.parse().expect("LANDFALL_SEED is a number"),
        Err(_) => rand::random_range(0..1_000_000),
    }
}
