//! The harness must be able to fail: with a bug planted in the worker it names the promise that is broken.
//!
//! The same worlds, the same kills, the same judge as everywhere else. Each bug breaks one promise.

use std::time::Duration;

use landfall_system_tests::{Failpoint, Plant, Role, Service, World};

use crate::WORLD;

#[tokio::test]
async fn an_early_acknowledgement_is_found_to_lose_messages() {
    let mut world = World::sqlite(WORLD, 11).await;
    world.setup.plant = Some(Plant::AcknowledgeEarly);
    // It will come to that.
    world.standstill = Duration::from_secs(3);
    // What the first one writes is waiting when the second begins to consume, so that it receives many at a time.
    world.setup.writes = Some(40);
    world.setup.roles = vec![Role::Write, Role::Relay];
    let life = world.begin();
    world.wait_until_published(&life).await;
    world.stop(life).await;

    world.setup.roles = Role::ALL.to_vec();
    for hit in [30, 30] {
        world.die_at(Failpoint::kill("consume.after-handler", hit)).await;
    }
    world.drain().await;
    let verdict = world.judge().await;
    assert!(!verdict.report.lost.is_empty(), "{verdict}");
}

#[tokio::test]
async fn a_message_enqueued_outside_of_the_transaction_is_found_to_be_a_phantom() {
    let mut world = World::sqlite(WORLD, 12).await;
    world.setup.plant = Some(Plant::EnqueueOutside);
    for hit in [5, 10] {
        world.die_at(Failpoint::kill("produce.before-commit", hit)).await;
    }
    world.drain().await;
    let verdict = world.judge().await;
    assert!(!verdict.report.phantom.is_empty(), "{verdict}");
}

#[tokio::test]
async fn a_consumer_without_an_inbox_is_found_to_double_effects() {
    let mut world = World::sqlite(WORLD, 13).await;
    world.setup.plant = Some(Plant::SkipInbox);
    for hit in [5, 10] {
        world.die_at(Failpoint::kill("consume.after-commit", hit)).await;
    }
    world.drain().await;
    let verdict = world.judge().await;
    assert!(!verdict.report.doubled.is_empty(), "{verdict}");
}

/// The kills of the strategies, and none of the strategies.
#[tokio::test]
async fn a_service_without_a_guard_is_found_to_double_effects() {
    let mut world = World::sqlite(WORLD, 15).await;
    world.setup.service = Service::Unguarded;
    for hit in [5, 10] {
        world.die_at(Failpoint::kill("consume.after-commit", hit)).await;
    }
    world.drain().await;
    let verdict = world.judge().await;
    assert!(!verdict.report.doubled.is_empty(), "{verdict}");
}

#[tokio::test]
async fn a_relay_that_publishes_backwards_is_found_to_reorder() {
    let mut world = World::sqlite(WORLD, 14).await;
    world.setup.plant = Some(Plant::ReverseBatches);
    // Nobody relays while the first one writes, so the second finds several messages of each key.
    world.setup.roles = vec![Role::Write];
    world.die_at(Failpoint::kill("produce.after-commit", 60)).await;
    world.drain().await;
    let verdict = world.judge().await;
    assert!(!verdict.report.reordered.is_empty(), "{verdict}");
}
