//! The harness must be able to fail: with a bug planted in the worker, it names the violated promise.
//!
//! Workers, kills and checks are the same as in the other tests. Each bug violates one promise.

use std::time::Duration;

use landfall_system_tests::{Failpoint, Harness, PlantedBug, Role, Service};

use crate::WORKER;

#[tokio::test]
async fn early_acknowledgement_is_detected_as_loss() {
    let mut harness = Harness::sqlite(WORKER, 11).await;
    harness.setup.planted_bug = Some(PlantedBug::AcknowledgeEarly);
    // The lost messages never arrive, so the drain will stall.
    harness.stall_timeout = Duration::from_secs(3);
    // The second worker starts to consume with a backlog, so that it receives many messages at a time.
    harness.setup.writes = Some(40);
    harness.setup.roles = vec![Role::Write, Role::Relay];
    let worker = harness.start();
    harness.wait_until_published(&worker).await;
    harness.stop(worker).await;

    harness.setup.roles = Role::ALL.to_vec();
    for hit in [30, 30] {
        harness.run_until_killed_at(Failpoint::kill("consume.after-handler", hit)).await;
    }
    harness.drain().await;
    let result = harness.check().await;
    assert!(!result.report.lost.is_empty(), "{result}");
}

#[tokio::test]
async fn enqueue_outside_the_transaction_is_detected_as_phantom() {
    let mut harness = Harness::sqlite(WORKER, 12).await;
    harness.setup.planted_bug = Some(PlantedBug::EnqueueOutside);
    for hit in [5, 10] {
        harness.run_until_killed_at(Failpoint::kill("produce.before-commit", hit)).await;
    }
    harness.drain().await;
    let result = harness.check().await;
    assert!(!result.report.phantom.is_empty(), "{result}");
}

#[tokio::test]
async fn consumer_without_inbox_is_detected_as_duplicate_effect() {
    let mut harness = Harness::sqlite(WORKER, 13).await;
    harness.setup.planted_bug = Some(PlantedBug::SkipInbox);
    for hit in [5, 10] {
        harness.run_until_killed_at(Failpoint::kill("consume.after-commit", hit)).await;
    }
    harness.drain().await;
    let result = harness.check().await;
    assert!(!result.report.doubled.is_empty(), "{result}");
}

/// The same kills as for the idempotency strategies, but without any of them.
#[tokio::test]
async fn service_without_guard_is_detected_as_duplicate_effect() {
    let mut harness = Harness::sqlite(WORKER, 15).await;
    harness.setup.service = Service::Unguarded;
    for hit in [5, 10] {
        harness.run_until_killed_at(Failpoint::kill("consume.after-commit", hit)).await;
    }
    harness.drain().await;
    let result = harness.check().await;
    assert!(!result.report.doubled.is_empty(), "{result}");
}

#[tokio::test]
async fn reversed_batches_are_detected_as_reordering() {
    let mut harness = Harness::sqlite(WORKER, 14).await;
    harness.setup.planted_bug = Some(PlantedBug::ReverseBatches);
    // No relay runs while the first worker writes, so the second finds several messages of each key.
    harness.setup.roles = vec![Role::Write];
    harness.run_until_killed_at(Failpoint::kill("produce.after-commit", 60)).await;
    harness.drain().await;
    let result = harness.check().await;
    assert!(!result.report.reordered.is_empty(), "{result}");
}
