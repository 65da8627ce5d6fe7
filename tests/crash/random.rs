//! Killed at any moment, again and again, the embedded log in its hands. The soak kills processes on every database; there
//! the broker is elsewhere and stays alive.
//!
//! A worker with all roles lives for a random while, mostly long enough to take over the leases of the one before and
//! get some work done, sometimes only long enough to open its files. Messages that fail once, and messages that are
//! parked and redriven, are among the others all the time. In the end everything must be as if nobody had died.

use std::time::Duration;

use landfall_system_tests::World;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::WORLD;

const KILLS: u32 = 120;

#[tokio::test]
async fn nothing_is_wrong_after_120_kills_on_sqlite() {
    let seed = seed();
    let mut world = World::sqlite(WORLD, seed).await;
    let mut random = StdRng::seed_from_u64(seed);
    for _ in 0..KILLS {
        let life = world.begin();
        let lifetime =
            if random.random_bool(0.2) { random.random_range(0..150) } else { random.random_range(150..700) };
        let death = life.killed_after(Duration::from_millis(lifetime)).await;
        assert!(death.was_killed(), "the worker gave up by itself: {} {:?}", death.status, death.complaints);
        world.bury(death);
    }
    world.drain().await;
    let verdict = world.judge().await;
    println!("{verdict}");
    verdict.assert_nothing_is_wrong();
    // A run in which nothing happened would prove nothing.
    assert!(verdict.rolled_back > 0 && verdict.unanswered_committed > 0, "{verdict}");
    assert!(world.count_redriven().await > 0);
}

/// A new one each time, printed by the world; `LANDFALL_TEST_SEED` repeats a run, as far as processes allow.
fn seed() -> u64 {
    match std::env::var("LANDFALL_TEST_SEED") {
        Ok(seed) => seed.parse().expect("LANDFALL_TEST_SEED is a number"),
        Err(_) => rand::random_range(0..1_000_000),
    }
}
