//! Tests of the traffic checker, with correct brokers and with brokers that have one bug each.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use landfall_core::{Broker, ErrorCode};
use landfall_testkit::chaos::{ChaosBroker, ChaosOptions};
use landfall_testkit::traffic::{Plan, Traffic, keyed, orders, stock};
use landfall_testkit::{Fault, MemoryBroker};

use crate::planted_traffic::{Bug, Planted};

/// For correct brokers, which finish in any case.
const LONG_TIMEOUT: Plan = Plan { keys: 4, batch: 20, backlog: 200, timeout: Duration::from_secs(60) };
/// For planted bugs.
const SHORT_TIMEOUT: Plan = Plan { timeout: Duration::from_secs(5), ..LONG_TIMEOUT };

/// Runs a load over a `broker` with a bug and returns the panic message of the checker; `None` if it passes.
async fn violation(broker: Arc<dyn Broker>) -> Option<String> {
    violation_within(SHORT_TIMEOUT, broker).await
}

async fn violation_within(plan: Plan, broker: Arc<dyn Broker>) -> Option<String> {
    let running = async move {
        let traffic = Traffic::start_with(plan, broker.clone(), [broker]).await;
        traffic.wait_for_accepted(300).await;
        traffic.finish().await;
    };
    let panic = AssertUnwindSafe(running).catch_unwind().await.err()?;
    Some(panic.downcast_ref::<String>().cloned().unwrap_or_else(|| panic.downcast_ref::<&str>().unwrap().to_string()))
}

async fn violation_of(bug: Bug) -> String {
    violation(Arc::new(Planted::new(bug))).await.unwrap_or_else(|| panic!("{bug:?} was not detected"))
}

#[tokio::test]
async fn correct_broker_passes() {
    assert_eq!(violation_within(LONG_TIMEOUT, Arc::new(Planted::new(Bug::Nothing))).await, None);
}

#[tokio::test]
async fn lost_accepted_message_is_reported() {
    let violation = violation_of(Bug::LosesMessage).await;
    assert!(violation.contains("lost (ok, but no effect): 1\n"), "{violation}");
}

#[tokio::test]
async fn swapped_messages_of_a_key_are_reported() {
    let violation = violation_of(Bug::SwapsMessages).await;
    assert!(violation.contains("reordered (overtaken by a later message of the same key): 1\n"), "{violation}");
}

#[tokio::test]
async fn refused_but_stored_message_is_reported() {
    let violation = violation_of(Bug::RefusesAndStores).await;
    assert!(violation.contains("took effect although every send of it was refused"), "{violation}");
}

#[tokio::test]
async fn overtaken_refused_message_is_reported() {
    let violation = violation_of(Bug::Overtakes).await;
    assert!(violation.contains("overtook an earlier message"), "{violation}");
}

#[tokio::test]
async fn missing_outcome_is_reported() {
    let violation = violation_of(Bug::OmitsOutcome).await;
    assert!(violation.contains("20 messages have 19 outcomes"), "{violation}");
}

#[tokio::test]
async fn permanent_refusal_and_failed_subscriber_are_reported() {
    let broker = MemoryBroker::new();
    broker.fail_next(1, Fault::RefusePermanently);
    let refused = violation(Arc::new(broker)).await.expect("the bug was not detected");
    assert!(refused.contains("permanently refused"), "{refused}");
    let options = ChaosOptions { disconnected: 0.1, ..ChaosOptions::none(3) };
    let failed =
        violation(Arc::new(ChaosBroker::new(MemoryBroker::new(), options))).await.expect("the bug was not detected");
    assert!(failed.contains("a subscriber failed"), "{failed}");
}

#[tokio::test]
async fn reordering_on_delivery_is_reported() {
    let options = ChaosOptions { overtaken: 0.05, overtaken_by_max: 8, within_key: true, ..ChaosOptions::none(5) };
    let violation =
        violation(Arc::new(ChaosBroker::new(MemoryBroker::new(), options))).await.expect("the bug was not detected");
    assert!(violation.contains("took effect after"), "{violation}");
}

#[tokio::test]
async fn duplicates_and_lost_acks_take_effect_once() {
    let options = ChaosOptions { duplicated: 0.1, duplicates_max: 2, acks_lost: 0.1, ..ChaosOptions::none(5) };
    let broker = ChaosBroker::new(MemoryBroker::new(), options);
    assert_eq!(violation_within(LONG_TIMEOUT, Arc::new(broker.clone())).await, None);
    assert!(broker.counts().duplicates > 10 && broker.counts().acks_lost > 10, "{:?}", broker.counts());
}

#[tokio::test]
async fn refused_key_waits_while_other_keys_progress() {
    let broker = MemoryBroker::new();
    let mut traffic = Traffic::new(LONG_TIMEOUT);
    traffic.add_sender(&broker);
    traffic.add_sender(&broker);
    let (first, second) = (traffic.add_consumer(&broker).await, traffic.add_consumer(&broker).await);
    traffic.wait_for_progress(100).await;
    broker.fail_next(3, Fault::UnknownAndLost);
    traffic.wait_for_unknown().await;
    broker.fail_when(|message| message.key.as_ref().is_some_and(|key| key.as_str() == "key-2"), Fault::Refuse);
    traffic.wait_for_refusal(ErrorCode::new("FULL")).await;
    traffic.wait_for_refusal(ErrorCode::PREDECESSOR).await;
    traffic.wait_for_failed_batches(3).await;
    // One key backs off while the others make progress.
    traffic.wait_for_progress(100).await;
    first.leave().await;
    broker.heal();
    traffic.wait_for_progress(100).await;
    traffic.add_consumer(&broker).await;
    second.kill();
    traffic.wait_for_progress(100).await;
    assert!(traffic.handled() >= 400);
    traffic.finish().await;
    assert_eq!(broker.unfinished(&orders(), &stock()), 0, "a message was not acknowledged");
}

#[tokio::test]
#[should_panic(expected = "timed out after 5s waiting until a message is refused with DENIED; ")]
async fn timeout_message_contains_the_counts() {
    let broker: Arc<dyn Broker> = Arc::new(MemoryBroker::new());
    Traffic::start_with(SHORT_TIMEOUT, broker.clone(), [broker]).await.wait_for_refusal(ErrorCode::DENIED).await;
}

#[tokio::test]
#[should_panic(expected = "the traffic did not drain: ")]
async fn traffic_that_does_not_drain_is_reported() {
    let broker = MemoryBroker::new();
    let traffic = Traffic::start_with(SHORT_TIMEOUT, Arc::new(broker.clone()), [Arc::new(broker.clone()) as _]).await;
    traffic.wait_for_progress(100).await;
    broker.fail_when(|message| message.key == keyed("key-1", 1).key, Fault::UnknownAndLost);
    traffic.wait_for_unknown().await;
    traffic.finish().await;
}
