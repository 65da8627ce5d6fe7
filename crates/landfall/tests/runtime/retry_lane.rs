//! Retry lanes: a failed message waits in the table or in `<topic>.retry`, without loss, duplicates or reordering.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall::consume::{Consumer, Options, Order, RetryLane, handler_fn, plain};
use landfall::{
    Backoff, Broker, DeadLetterStatus, ErrorCode, Failure, GroupName, Message, SystemHeader, Timestamp, TopicName,
};
use landfall_testkit::chaos::{ChaosBroker, ChaosOptions};
use landfall_testkit::{Fault, eventually};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio_util::sync::CancellationToken;

use crate::batches::{apply, batched};
use crate::database::TestDatabase;
use crate::equivalence::{expected, history};
use crate::fixture::{Fixture, QUICK, TIMEOUT, group, message, options, topic};
use crate::on_every_database;

on_every_database!(
    delayed_message_is_acknowledged_and_holds_its_key,
    delayed_message_keeps_its_attempts_across_processes,
    unordered_delayed_message_blocks_no_other,
    database_lane_matches_in_process_retries,
    retry_topic_carries_the_failure_in_headers,
    retry_topic_message_takes_effect_once_or_is_parked,
    retry_topic_leaves_ordered_keys_in_process,
    unconfirmed_retry_publish_keeps_the_message_in_process,
    retry_lanes_tolerate_an_adverse_broker,
    outage_does_not_move_messages_to_the_retry_lane,
);

/// Moves a message for any pause.
fn lane(retry_lane: RetryLane) -> Options {
    Options { retry_lane, lane_after: Duration::ZERO, ..batched(5, 4) }
}

/// A lane whose messages are not due before the test has ended.
fn long_lane(retry_lane: RetryLane) -> Options {
    let backoff = Backoff { first: TIMEOUT * 2, cap: TIMEOUT * 2, max_attempts: 3 };
    Options { backoff, ..lane(retry_lane) }
}

fn retry_topic() -> TopicName {
    TopicName::new("orders.retry").unwrap()
}

fn in_lane<D: TestDatabase>(fixture: &Fixture<D>) -> Vec<Message> {
    let all = fixture.broker.published().into_iter().map(|(_, message)| message);
    all.filter(|message| message.topic == retry_topic()).collect()
}

async fn sequences<D: TestDatabase>(fixture: &Fixture<D>, key: &str) -> Vec<i64> {
    let effects = fixture.database.effects().await.into_iter().filter(|effect| effect.key.as_deref() == Some(key));
    effects.filter_map(|effect| effect.sequence).collect()
}

async fn delayed_message_is_acknowledged_and_holds_its_key<D: TestDatabase>(fixture: Fixture<D>) {
    fixture.publish(&[message("a", 1, "failing"), message("a", 2, "good"), message("b", 1, "good")]).await;
    fixture.publish(&[message("a", 3, "good"), message("b", 2, "good")]).await;
    let running = fixture.consumer(long_lane(RetryLane::Database), plain(apply::<D>));
    // All are acknowledged, although one is delayed and two wait.
    fixture.is_drained().await;
    running.stop().await;
    let stats = fixture.database.dead_letter_stats().await.unwrap();
    assert_eq!((stats.delayed, stats.waiting, stats.parked), (1, 2, 0));
    assert_eq!((sequences(&fixture, "a").await, sequences(&fixture, "b").await), (vec![], vec![1, 2]));
    let letter = fixture.letters().await.into_iter().find(|letter| letter.status == DeadLetterStatus::Delayed).unwrap();
    assert_eq!((letter.sequence, letter.attempts, letter.error.as_str()), (Some(1), 1, "it never works"));
    assert!(letter.retry_at > Some(Timestamp::now()));
}

async fn delayed_message_keeps_its_attempts_across_processes<D: TestDatabase>(fixture: Fixture<D>) {
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let seen = attempts.clone();
    let handler = move || {
        let seen = seen.clone();
        handler_fn::<D, _>(move |context| {
            seen.lock().unwrap().push(context.attempt);
            Box::pin(async { Err(Failure::retry("not repaired yet")) })
        })
    };
    fixture.publish(&[message("a", 1, "good")]).await;
    for process in 1..=3 {
        let running = fixture.consumer(long_lane(RetryLane::Database), handler());
        // It is due once in each process. An attempt that was not recorded before the stop is repeated.
        let due = "UPDATE landfall_dead_letter SET retry_at = first_seen WHERE status = 'delayed' AND attempts <";
        eventually(TIMEOUT, "another attempt is recorded", async || {
            fixture.database.run(&format!("{due} {process}")).await;
            fixture.letters().await.first().is_some_and(|letter| letter.attempts >= process)
        })
        .await;
        running.stop().await;
    }
    assert_eq!(*attempts.lock().unwrap(), [1, 2, 3]);
    let letter = fixture.letters().await.remove(0);
    assert_eq!((letter.status, letter.attempts), (DeadLetterStatus::Parked, 3));
}

async fn unordered_delayed_message_blocks_no_other<D: TestDatabase>(fixture: Fixture<D>) {
    fixture.publish(&[message("a", 1, "failing"), message("a", 2, "good"), message("a", 3, "flaky")]).await;
    let options = Options { order: Order::Unordered, backoff: QUICK, ..long_lane(RetryLane::Database) };
    let running = fixture.consumer(options, plain(apply::<D>));
    fixture.effects_become(2).await;
    fixture.is_drained().await;
    eventually(TIMEOUT, "the failing message is parked", async || {
        fixture.database.dead_letter_stats().await.unwrap().parked == 1
    })
    .await;
    running.stop().await;
    assert_eq!(sequences(&fixture, "a").await.len(), 2);
    assert_eq!(fixture.letters().await.iter().map(|letter| letter.attempts).max(), Some(3));
}

/// The random histories of the batch tests: effects, dead letters and order match a consumer without a lane.
async fn database_lane_matches_in_process_retries<D: TestDatabase>(first: Fixture<D>) {
    let seed = rand::random_range(0..1_000_000);
    let random = &mut StdRng::seed_from_u64(seed);
    let mut fixture = Some(first);
    for _ in 0..2 {
        let history = history(random);
        let (effects, letters) = expected(&history);
        let [done, open] = [&effects, &letters].map(|side| side.values().map(Vec::len).sum::<usize>());
        let fixture = match fixture.take() {
            Some(fixture) => fixture,
            None => Fixture::<D>::new().await.unwrap(),
        };
        fixture.publish(&history).await;
        let running = fixture.consumer(lane(RetryLane::Database), plain(apply::<D>));
        eventually(TIMEOUT, &format!("{done} effects and {open} letters, seed {seed}"), async || {
            let stats = fixture.database.dead_letter_stats().await.unwrap();
            fixture.database.effects().await.len() == done
                && (stats.delayed, stats.parked + stats.waiting) == (0, open as u64)
        })
        .await;
        // Duplicates change nothing, and may arrive last.
        fixture.is_drained().await;
        running.stop().await;
        let mut found = fixture.account().await.effects;
        found.retain(|key, _| key.is_some());
        for (key, of_key) in found {
            let sequences: Vec<_> = of_key.iter().filter_map(|effect| effect.sequence).collect();
            assert_eq!(Some(&sequences), effects.get(&key), "{key:?}, seed {seed}");
        }
        fixture.all_is_acknowledged().await;
    }
}

async fn retry_topic_carries_the_failure_in_headers<D: TestDatabase>(fixture: Fixture<D>) {
    let mut failing = message("a", 7, "failing");
    failing.headers.insert("tenant", "北京").unwrap();
    fixture.publish(&[message("a", 6, "good"), failing.clone(), message("a", 8, "good")]).await;
    let options = Options { order: Order::Unordered, ..long_lane(RetryLane::Topic) };
    let running = fixture.consumer(options, plain(apply::<D>));
    eventually(TIMEOUT, "the message is in the lane", async || in_lane(&fixture).len() == 1).await;
    fixture.is_drained().await;
    running.stop().await;
    let moved = in_lane(&fixture).remove(0);
    assert_eq!((moved.id, &moved.payload, moved.headers.get("tenant")), (failing.id, &failing.payload, Some("北京")));
    let noted = |header| moved.headers.noted(header).map(ToOwned::to_owned);
    for (header, value) in [
        (SystemHeader::Attempts, "1"),
        (SystemHeader::Group, "stock"),
        (SystemHeader::OriginalTopic, "orders"),
        (SystemHeader::OriginalPartition, "0"),
        (SystemHeader::OriginalOffset, "1"),
        (SystemHeader::ErrorCode, "HANDLER_ERROR"),
        (SystemHeader::Error, "it never works"),
    ] {
        assert_eq!(noted(header).as_deref(), Some(value), "{header}");
    }
    let due: Timestamp = noted(SystemHeader::RetryAt).unwrap().parse().unwrap();
    assert!(due > Timestamp::now());
    assert_eq!(fixture.broker.unfinished(&retry_topic(), &group()), 1, "not acknowledged before its next attempt");
    assert!(fixture.letters().await.is_empty());
}

/// The main topic delivers duplicates of every message in addition.
async fn retry_topic_message_takes_effect_once_or_is_parked<D: TestDatabase>(fixture: Fixture<D>) {
    let kind = |n| ["good", "flaky", "good", "failing"][n as usize % 4];
    let messages: Vec<_> = (0..40).map(|n| message("a", n, kind(n))).collect();
    let options = Options { order: Order::Unordered, ..lane(RetryLane::Topic) };
    let members = [1, 8].map(|batch| {
        let options = Options { batch, ..options.clone() };
        fixture.consumer(
            options,
            handler_fn::<D, _>(|context| {
                assert_eq!(context.message.topic, topic(), "the handler sees the original message");
                assert!(context.message.headers.is_empty(), "{:?}", context.message.headers);
                Box::pin(apply(context))
            }),
        )
    });
    // Another group skips the failed messages of this one.
    let other_group = GroupName::new("payment").unwrap();
    let (database, broker) = (fixture.database.clone(), fixture.broker.clone());
    let stop = CancellationToken::new();
    let other = Consumer::builder(database, broker)
        .topic(topic())
        .group(other_group.clone())
        .handler(plain(no_effect::<D>))
        .options(options)
        .build()
        .unwrap();
    let other = tokio::spawn(other.run(stop.clone()));
    fixture.publish(&messages).await;
    fixture.publish(&messages).await;
    fixture.settle(40).await;
    fixture.is_drained().await;
    eventually(TIMEOUT, "the lane is empty", async || {
        fixture.broker.unfinished(&retry_topic(), &group()) + fixture.broker.unfinished(&retry_topic(), &other_group)
            == 0
    })
    .await;
    for member in members {
        member.stop().await;
    }
    stop.cancel();
    other.await.unwrap().unwrap();
    let mut done = sequences(&fixture, "a").await;
    done.sort();
    assert_eq!(done, (0..40).filter(|n| kind(*n) != "failing").collect::<Vec<_>>(), "each once");
    let letters = fixture.letters().await;
    assert_eq!(letters.len(), 10);
    assert!(letters.iter().all(|letter| letter.attempts == 3 && letter.original_offset.is_some()), "{letters:?}");
}

/// Has no effect and never fails.
async fn no_effect<D: TestDatabase>(_: landfall::consume::Context<'_, D>) -> Result<(), Failure> {
    Ok(())
}

async fn retry_topic_leaves_ordered_keys_in_process<D: TestDatabase>(fixture: Fixture<D>) {
    let keyless = Message { key: None, ..message("none", 1, "flaky") };
    fixture.publish(&[message("a", 1, "flaky"), keyless, message("a", 2, "good"), message("a", 3, "flaky")]).await;
    let running = fixture.consumer(lane(RetryLane::Topic), plain(apply::<D>));
    fixture.effects_become(4).await;
    fixture.is_drained().await;
    running.stop().await;
    assert_eq!(sequences(&fixture, "a").await, [1, 2, 3]);
    assert_eq!(in_lane(&fixture).iter().map(|moved| moved.key.clone()).collect::<Vec<_>>(), [None]);
}

async fn unconfirmed_retry_publish_keeps_the_message_in_process<D: TestDatabase>(fixture: Fixture<D>) {
    for fault in [Fault::RefusePermanently, Fault::Unavailable, Fault::UnknownAndLost, Fault::UnknownAndStored] {
        let before = fixture.database.effects().await.len();
        fixture.broker.fail_when(|message| message.topic == retry_topic(), fault);
        fixture.publish(&[message("a", 1, "flaky"), message("b", 1, "good")]).await;
        let options = Options { order: Order::Unordered, ..lane(RetryLane::Topic) };
        let running = fixture.consumer(options, plain(apply::<D>));
        fixture.effects_become(before + 2).await;
        fixture.is_drained().await;
        running.stop().await;
        assert_eq!(fixture.database.effects().await.len(), before + 2, "{fault:?}");
        fixture.broker.heal();
    }
}

/// Duplicates in several members, delays, lost acknowledgements and memberships, in the main topic and in the lane.
async fn retry_lanes_tolerate_an_adverse_broker<D: TestDatabase>(first: Fixture<D>) {
    let mut first = Some(first);
    for (retry_lane, order) in [(RetryLane::Database, Order::ByKey), (RetryLane::Topic, Order::Unordered)] {
        let fixture = match first.take() {
            Some(fixture) => fixture,
            None => Fixture::<D>::new().await.unwrap(),
        };
        let troubles = ChaosOptions::everything(rand::random_range(0..1_000_000));
        let (seed, broker) = (troubles.seed, ChaosBroker::around(fixture.broker.clone(), troubles));
        let kind = |n| if n % 5 == 0 { "flaky" } else { "good" };
        let messages: Vec<_> = (1..=100).map(|n| message(&format!("key-{}", n % 4), n, kind(n))).collect();
        fixture.publish(&messages).await;
        let (database, shared) = (fixture.database.clone(), Arc::new(broker.clone()) as Arc<dyn Broker>);
        let options = Options { order, ..lane(retry_lane) };
        let consumer = Consumer::builder(database, shared)
            .topic(topic())
            .group(group())
            .handler(plain(apply::<D>))
            .options(options)
            .build()
            .unwrap();
        let stop = CancellationToken::new();
        let consumer = tokio::spawn(consumer.run(stop.clone()));
        fixture.effects_become(100).await;
        broker.heal();
        eventually(TIMEOUT, "every duplicate is settled", async || {
            let unfinished = |topic: &TopicName| fixture.broker.unfinished(topic, &group());
            unfinished(&topic()) + unfinished(&retry_topic()) == 0 && broker.unacked_duplicates() == 0
        })
        .await;
        stop.cancel();
        consumer.await.unwrap().unwrap();
        for key in 0..4 {
            let mut found = sequences(&fixture, &format!("key-{key}")).await;
            if order == Order::Unordered {
                found.sort();
            }
            let sent: Vec<_> = (1..=100).filter(|n| n % 4 == key).collect();
            assert_eq!(found, sent, "{retry_lane:?}, seed {seed}, {:?}", broker.counts());
        }
        assert!(fixture.letters().await.iter().all(|letter| letter.status == DeadLetterStatus::Done));
    }
}

/// Moving them would empty the broker's backlog into the lane during the outage.
async fn outage_does_not_move_messages_to_the_retry_lane<D: TestDatabase>(fixture: Fixture<D>) {
    let calls = Arc::new(Mutex::new(0));
    let counted = calls.clone();
    let handler = handler_fn::<D, _>(move |context| {
        let mut calls = counted.lock().unwrap();
        *calls += 1;
        // Far more calls than the maximum number of attempts.
        let is_up = *calls > 20;
        Box::pin(async move {
            apply(context).await?;
            if is_up { Ok(()) } else { Err(Failure::retry("refused").with_code(ErrorCode::DEPENDENCY)) }
        })
    });
    fixture.publish(&[message("a", 1, "good"), message("a", 2, "good")]).await;
    let running = fixture.consumer(lane(RetryLane::Database), handler);
    fixture.effects_become(2).await;
    running.stop().await;
    assert!(fixture.letters().await.is_empty(), "neither delayed nor parked: {:?}", fixture.letters().await);
    assert_eq!(sequences(&fixture, "a").await, [1, 2]);
}

/// The name is checked when the consumer is built, not when the first message fails.
#[tokio::test]
async fn too_long_retry_topic_name_is_refused_by_build() {
    let Some(fixture) = Fixture::<landfall_sqlite::Sqlite>::new().await else { return };
    let long = TopicName::new("x".repeat(249)).unwrap();
    let options = Options { retry_lane: RetryLane::Topic, ..options() };
    let handler = plain(no_effect::<landfall_sqlite::Sqlite>);
    let builder = Consumer::builder(fixture.database.clone(), fixture.broker.clone());
    let error = builder.topic(long).group(group()).handler(handler).options(options).build().unwrap_err();
    assert_eq!(error.kind(), landfall::ErrorKind::Invalid);
}
