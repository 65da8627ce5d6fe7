//! A message that the broker does not take holds back its own key, and only that key (L1, L4).

use std::time::Duration;

use landfall::{DeadLetterFilter, DeadLetters, OutboxFilter, OutboxView};
use landfall_system_tests::PATIENCE;
use landfall_testkit::{Fault, eventually};

use crate::stage::Stage;

const LEASE: Duration = Duration::from_secs(2);
const FAILING: &str = "customer-0";
/// Written by each writer before the broker heals.
const WRITES: u32 = 10;

/// The head of the key fails again and again, then the broker takes it: its successors follow, in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_head_holds_back_its_key_alone_and_drains_by_itself() {
    let Some(mut stage) = failing(41, u32::MAX).await else { return };
    let relays = [stage.relay(), stage.relay()];
    stage.write(WRITES).await;
    stage.has_effects(|order| order.key != FAILING).await;
    let head = async |stage: &Stage| stage.producer.list(&OutboxFilter::default(), 1).await.unwrap().remove(0);
    eventually(PATIENCE, "the head has failed several times", async || head(&stage).await.attempts >= 3).await;
    assert_eq!(waiting_and_applied(&stage).await, (WRITES as usize, 0));

    stage.broker.heal();
    stage.judge(relays).await.assert_nothing_is_wrong();
}

/// The head fails as often as it may and is parked: the successors wait behind it, whatever the broker says, until
/// somebody redrives it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_head_holds_back_its_key_alone_until_it_is_redriven() {
    let Some(mut stage) = failing(42, 3).await else { return };
    let relays = [stage.relay(), stage.relay()];
    stage.write(WRITES).await;
    stage.has_effects(|order| order.key != FAILING).await;
    let parked = async |stage: &Stage| stage.producer.stats().await.unwrap().parked;
    eventually(PATIENCE, "the head is parked", async || parked(&stage).await == 1).await;
    assert_eq!(waiting_and_applied(&stage).await, (WRITES as usize - 1, 0));

    // The broker would take it now, and takes everything of the other keys; the successors do not overtake.
    stage.broker.heal();
    stage.write(WRITES).await;
    stage.has_effects(|order| order.key != FAILING).await;
    assert_eq!(waiting_and_applied(&stage).await, (2 * WRITES as usize - 1, 0));

    let redriven = stage.producer.redrive(&DeadLetterFilter::default(), "operator").await.unwrap();
    assert_eq!(redriven.redriven.len(), 1);
    stage.judge(relays).await.assert_nothing_is_wrong();
}

/// A stage whose broker answers nothing about the messages of one key, and does not keep them.
async fn failing(seed: u64, max_attempts: u32) -> Option<Stage> {
    let mut stage = Stage::set(seed, LEASE).await?;
    stage.world.setup.max_attempts = max_attempts;
    let failing = |key: &landfall::Key| key.as_str() == FAILING;
    stage.broker.fail_when(move |message| message.key.as_ref().is_some_and(failing), Fault::UnknownAndLost);
    Some(stage)
}

/// How many messages of the failing key stand in the outbox, where nobody else's does, and how many had their effect.
async fn waiting_and_applied(stage: &Stage) -> (usize, usize) {
    let mut rows = Vec::new();
    // An effect is seen before the relay has settled its message.
    eventually(PATIENCE, "what was published is settled", async || {
        rows = stage.producer.list(&OutboxFilter::default(), 1_000).await.unwrap();
        rows.iter().all(|row| row.key.as_ref().is_some_and(|key| key.as_str() == FAILING))
    })
    .await;
    let applied = stage.effects().await.iter().filter(|effect| effect.key == FAILING).count();
    (rows.len(), applied)
}
