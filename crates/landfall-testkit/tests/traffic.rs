//! The judge of messages on their way, over brokers that are sound and over brokers with one bug each.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod planted_traffic;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use landfall_core::{Broker, ErrorCode};
use landfall_testkit::traffic::{Plan, Traffic, keyed, orders, stock};
use landfall_testkit::unruly::{Troubles, UnrulyBroker};
use landfall_testkit::{Fault, MemoryBroker};
use planted_traffic::{Bug, Planted};

/// Of a broker with which nothing is wrong everything comes in the end.
const PATIENT: Plan = Plan { keys: 4, batch: 20, backlog: 200, patience: Duration::from_secs(60) };
/// A planted bug is waited for no longer than this.
const IMPATIENT: Plan = Plan { patience: Duration::from_secs(5), ..PATIENT };

/// What is said about messages that went over a `broker` with a bug; `None` if nothing is wrong with them.
async fn verdict(broker: Arc<dyn Broker>) -> Option<String> {
    verdict_after(IMPATIENT, broker).await
}

async fn verdict_after(plan: Plan, broker: Arc<dyn Broker>) -> Option<String> {
    let running = async move {
        let traffic = Traffic::start_with(plan, broker.clone(), [broker]).await;
        traffic.accepts(300).await;
        traffic.finish().await;
    };
    let panic = AssertUnwindSafe(running).catch_unwind().await.err()?;
    Some(panic.downcast_ref::<String>().cloned().unwrap_or_else(|| panic.downcast_ref::<&str>().unwrap().to_string()))
}

async fn verdict_on(bug: Bug) -> String {
    verdict(Arc::new(Planted::new(bug))).await.unwrap_or_else(|| panic!("{bug:?} was not found"))
}

#[tokio::test]
async fn a_sound_broker_has_nothing_to_answer_for() {
    assert_eq!(verdict_after(PATIENT, Arc::new(Planted::new(Bug::Nothing))).await, None);
}

#[tokio::test]
async fn a_message_that_was_accepted_and_lost_is_found() {
    let verdict = verdict_on(Bug::LosesOne).await;
    assert!(verdict.contains("lost (ok, and without effect): 1\n"), "{verdict}");
}

#[tokio::test]
async fn two_messages_of_a_key_that_changed_places_are_found() {
    let verdict = verdict_on(Bug::SwapsTwo).await;
    assert!(verdict.contains("reordered (overtaken by a later message of the same key): 1\n"), "{verdict}");
}

#[tokio::test]
async fn a_message_that_was_refused_and_stored_is_found() {
    let verdict = verdict_on(Bug::RefusesAndStores).await;
    assert!(verdict.contains("took effect that was refused"), "{verdict}");
}

#[tokio::test]
async fn a_key_that_goes_on_behind_what_was_not_accepted_is_found() {
    let verdict = verdict_on(Bug::Overtakes).await;
    assert!(verdict.contains("overtook one before it"), "{verdict}");
}

#[tokio::test]
async fn a_missing_outcome_is_found() {
    let verdict = verdict_on(Bug::OmitsAnOutcome).await;
    assert!(verdict.contains("20 messages were answered with 19 outcomes"), "{verdict}");
}

#[tokio::test]
async fn a_refusal_for_good_and_a_subscriber_that_gives_up_are_found() {
    let broker = MemoryBroker::new();
    broker.fail_next(1, Fault::RefuseForGood);
    let refused = verdict(Arc::new(broker)).await.expect("it is found");
    assert!(refused.contains("refused for good"), "{refused}");
    let troubles = Troubles { disconnected: 0.1, ..Troubles::none(3) };
    let given_up = verdict(Arc::new(UnrulyBroker::new(MemoryBroker::new(), troubles))).await.expect("it is found");
    assert!(given_up.contains("a subscriber gave up"), "{given_up}");
}

#[tokio::test]
async fn messages_that_overtake_others_of_their_key_on_the_way_to_the_consumer_are_found() {
    let troubles = Troubles { overtaken: 0.05, overtaken_by_max: 8, within_key: true, ..Troubles::none(5) };
    let verdict = verdict(Arc::new(UnrulyBroker::new(MemoryBroker::new(), troubles))).await.expect("it is found");
    assert!(verdict.contains("took effect after"), "{verdict}");
}

#[tokio::test]
async fn copies_and_lost_acknowledgements_take_effect_once() {
    let troubles = Troubles { duplicated: 0.1, copies_max: 2, acks_lost: 0.1, ..Troubles::none(5) };
    let broker = UnrulyBroker::new(MemoryBroker::new(), troubles);
    assert_eq!(verdict_after(PATIENT, Arc::new(broker.clone())).await, None);
    assert!(broker.happened().copies > 10 && broker.happened().acks_lost > 10, "{:?}", broker.happened());
}

#[tokio::test]
async fn what_a_broker_says_is_waited_for_and_each_key_waits_behind_what_was_not_accepted() {
    let broker = MemoryBroker::new();
    let mut traffic = Traffic::new(PATIENT);
    traffic.send(&broker);
    traffic.send(&broker);
    let (first, second) = (traffic.join(&broker).await, traffic.join(&broker).await);
    traffic.flows(100).await;
    broker.fail_next(3, Fault::UnknownAndLost);
    traffic.unknown().await;
    broker.fail_when(|message| message.key.as_ref().is_some_and(|key| key.as_str() == "key-2"), Fault::Refuse);
    traffic.suffers(ErrorCode::new("FULL")).await;
    traffic.suffers(ErrorCode::PREDECESSOR).await;
    traffic.fails(3).await;
    // One key waits for its own, and the others go on.
    traffic.flows(100).await;
    first.leave().await;
    broker.heal();
    traffic.flows(100).await;
    traffic.join(&broker).await;
    second.vanish();
    traffic.flows(100).await;
    assert!(traffic.handled() >= 400);
    traffic.finish().await;
    assert_eq!(broker.unfinished(&orders(), &stock()), 0, "everything was acknowledged");
}

#[tokio::test]
#[should_panic(expected = "waited 5s in vain: a message is refused with DENIED; ")]
async fn what_never_comes_about_is_said_with_the_account() {
    let broker: Arc<dyn Broker> = Arc::new(MemoryBroker::new());
    Traffic::start_with(IMPATIENT, broker.clone(), [broker]).await.suffers(ErrorCode::DENIED).await;
}

#[tokio::test]
#[should_panic(expected = "it does not drain by itself: ")]
async fn what_does_not_drain_is_found() {
    let broker = MemoryBroker::new();
    let traffic = Traffic::start_with(IMPATIENT, Arc::new(broker.clone()), [Arc::new(broker.clone()) as _]).await;
    traffic.flows(100).await;
    broker.fail_when(|message| message.key == keyed("key-1", 1).key, Fault::UnknownAndLost);
    traffic.unknown().await;
    traffic.finish().await;
}
