//! A message that the broker does not accept holds back its own key, and only that key (L1, L4).

use std::time::Duration;

use landfall::{DeadLetterFilter, DeadLetters, OutboxFilter, OutboxView};
use landfall_system_tests::TIMEOUT;
use landfall_testkit::{Fault, eventually};

use crate::scenario::Scenario;

const LEASE: Duration = Duration::from_secs(2);
const FAILING: &str = "customer-0";
/// Written by each writer before the broker heals.
const WRITES: u32 = 10;

/// The head of the key fails repeatedly until the broker accepts it; then its successors follow in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_head_holds_back_only_its_key_and_drains() {
    let Some(mut scenario) = failing(41, u32::MAX).await else { return };
    let relays = [scenario.relay(), scenario.relay()];
    scenario.write(WRITES).await;
    scenario.wait_for_effects(|order| order.key != FAILING).await;
    let head = async |scenario: &Scenario| scenario.producer.list(&OutboxFilter::default(), 1).await.unwrap().remove(0);
    eventually(TIMEOUT, "the head has failed several times", async || head(&scenario).await.attempts >= 3).await;
    assert_eq!(waiting_and_applied(&scenario).await, (WRITES as usize, 0));

    scenario.broker.heal();
    scenario.check(relays).await.assert_clean();
}

/// The head exhausts its attempts and is parked. Its successors wait behind it until an operator redrives it, even if
/// the broker would accept them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parked_head_holds_back_only_its_key_until_redriven() {
    let Some(mut scenario) = failing(42, 3).await else { return };
    let relays = [scenario.relay(), scenario.relay()];
    scenario.write(WRITES).await;
    scenario.wait_for_effects(|order| order.key != FAILING).await;
    let parked = async |scenario: &Scenario| scenario.producer.stats().await.unwrap().parked;
    eventually(TIMEOUT, "the head is parked", async || parked(&scenario).await == 1).await;
    assert_eq!(waiting_and_applied(&scenario).await, (WRITES as usize - 1, 0));

    // The broker works again and accepts messages of other keys; the successors do not overtake the parked head.
    scenario.broker.heal();
    scenario.write(WRITES).await;
    scenario.wait_for_effects(|order| order.key != FAILING).await;
    assert_eq!(waiting_and_applied(&scenario).await, (2 * WRITES as usize - 1, 0));

    let redriven = scenario.producer.redrive(&DeadLetterFilter::default(), "operator").await.unwrap();
    assert_eq!(redriven.redriven.len(), 1);
    scenario.check(relays).await.assert_clean();
}

/// A scenario whose broker loses the messages of one key without a response.
async fn failing(seed: u64, max_attempts: u32) -> Option<Scenario> {
    let mut scenario = Scenario::start(seed, LEASE).await?;
    scenario.harness.setup.max_attempts = max_attempts;
    let failing = |key: &landfall::Key| key.as_str() == FAILING;
    scenario.broker.fail_when(move |message| message.key.as_ref().is_some_and(failing), Fault::UnknownAndLost);
    Some(scenario)
}

/// The number of messages of the failing key in the outbox, and the number that took effect. Other keys have none left.
async fn waiting_and_applied(scenario: &Scenario) -> (usize, usize) {
    let mut rows = Vec::new();
    // An effect is visible before the relay has settled its message.
    eventually(TIMEOUT, "published messages are settled", async || {
        rows = scenario.producer.list(&OutboxFilter::default(), 1_000).await.unwrap();
        rows.iter().all(|row| row.key.as_ref().is_some_and(|key| key.as_str() == FAILING))
    })
    .await;
    let applied = scenario.effects().await.iter().filter(|effect| effect.key == FAILING).count();
    (rows.len(), applied)
}
