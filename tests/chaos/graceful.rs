//! SIGTERM: a relay finishes its work in flight and releases its leases, so that its successor does not wait for them.

use std::time::{Duration, Instant};

use landfall_system_tests::TIMEOUT;
use landfall_testkit::eventually;
use tokio_util::sync::CancellationToken;

use crate::scenario::Scenario;

/// So long that the test would notice a successor that waits for it.
const LEASE: Duration = Duration::from_secs(45);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminated_relay_settles_its_batch_and_releases_its_leases() {
    let Some(mut scenario) = Scenario::start(51, LEASE).await else { return };
    let first = scenario.relay();
    scenario.wait_until_shared_by(1).await;
    let enough = CancellationToken::new();
    let writers = scenario.start_writers(None, &enough);
    scenario.wait_until_published(50).await;
    scenario.harness.stop(first).await;
    assert_eq!(scenario.held().await, (0, 0), "no shard is leased and no relay is registered");

    let started = Instant::now();
    let second = scenario.relay();
    scenario.wait_until_published(50).await;
    assert!(started.elapsed() < LEASE / 2, "the successor waited {:?} of a lease of {LEASE:?}", started.elapsed());
    enough.cancel();
    writers.join_all().await;
    scenario.wait_for_effects(|_| true).await;

    // A relay that settles its published messages before it stops leaves no duplicates to its successor.
    assert_eq!(scenario.duplicates(), 0);
    scenario.check([second]).await.assert_clean();
}

/// The counterpart: a killed relay cannot release its leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_relay_leaves_its_leases() {
    let Some(mut scenario) = Scenario::start(52, LEASE).await else { return };
    let relay = scenario.relay();
    scenario.wait_until_shared_by(1).await;
    assert!(relay.kill_after(Duration::ZERO).await.was_killed());
    assert_eq!(scenario.held().await, (16, 1));

    // The successor does not take over before the leases expire.
    let successor = scenario.relay();
    scenario.write(1).await;
    eventually(TIMEOUT, "the successor is alive", async || scenario.held().await.1 == 2).await;
    assert!(scenario.broker.published().is_empty());
    scenario.harness.stop(successor).await;
}
