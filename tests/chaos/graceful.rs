//! SIGTERM: a relay finishes what it has in its hands and gives its leases back, so that nobody waits for them to end.

use std::time::{Duration, Instant};

use landfall_system_tests::PATIENCE;
use landfall_testkit::eventually;
use tokio_util::sync::CancellationToken;

use crate::stage::Stage;

/// Long enough that a successor which had to wait for it would be noticed.
const LEASE: Duration = Duration::from_secs(45);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_is_told_to_stop_gives_its_leases_back_and_leaves_nothing_half_done() {
    let Some(mut stage) = Stage::set(51, LEASE).await else { return };
    let first = stage.relay();
    stage.is_shared_by(1).await;
    let enough = CancellationToken::new();
    let writers = stage.begin_writing(None, &enough);
    stage.has_published(50).await;
    stage.world.stop(first).await;
    assert_eq!(stage.held().await, (0, 0), "no shard is leased and nobody says that he is alive");

    let started = Instant::now();
    let second = stage.relay();
    stage.has_published(50).await;
    assert!(started.elapsed() < LEASE / 2, "the successor waited {:?} of a lease of {LEASE:?}", started.elapsed());
    enough.cancel();
    writers.join_all().await;
    stage.has_effects(|_| true).await;

    // Whoever settles what he has published before he goes leaves no copy to his successor.
    assert_eq!(stage.copies(), 0);
    stage.judge([second]).await.assert_nothing_is_wrong();
}

/// The other half of the proof: without a chance to give them back, the leases stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_is_killed_leaves_its_leases_behind() {
    let Some(mut stage) = Stage::set(52, LEASE).await else { return };
    let relay = stage.relay();
    stage.is_shared_by(1).await;
    assert!(relay.killed_after(Duration::ZERO).await.was_killed());
    assert_eq!(stage.held().await, (16, 1));

    // Nobody takes over before the time is up.
    let successor = stage.relay();
    stage.write(1).await;
    eventually(PATIENCE, "the successor is alive", async || stage.held().await.1 == 2).await;
    assert!(stage.broker.published().is_empty());
    stage.world.stop(successor).await;
}
