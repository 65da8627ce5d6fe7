//! Where a message waits for its next try: in the table, or in `<topic>.retry`. Nothing is doubled, lost or overtaken.

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
use crate::equivalence::{expected, history};
use crate::ground::{Ground, PATIENCE, QUICK, group, message, options, topic};
use crate::on_every_database;
use crate::place::Place;

on_every_database!(
    a_delayed_message_is_acknowledged_and_its_key_waits_behind_it_in_the_table,
    a_delayed_message_goes_on_counting_in_another_process,
    without_order_a_delayed_message_holds_nobody,
    what_is_delayed_in_the_table_ends_as_if_it_had_waited_here,
    a_topic_lane_takes_what_has_no_order_with_everything_about_its_failure,
    what_returns_from_a_topic_lane_takes_effect_once_or_is_parked_in_the_end,
    a_topic_lane_leaves_ordered_keys_where_they_are,
    what_a_topic_lane_does_not_take_waits_here,
    an_unruly_broker_changes_nothing_about_a_lane,
    what_a_dependency_that_is_gone_keeps_waiting_is_not_moved_to_a_lane,
);

/// Every pause is worth the way.
fn lane(retry_lane: RetryLane) -> Options {
    Options { retry_lane, lane_after: Duration::ZERO, ..batched(5, 4) }
}

/// A lane from which nothing comes back before the test is over.
fn for_long(retry_lane: RetryLane) -> Options {
    let backoff = Backoff { first: PATIENCE * 2, cap: PATIENCE * 2, max_attempts: 3 };
    Options { backoff, ..lane(retry_lane) }
}

fn retry_topic() -> TopicName {
    TopicName::new("orders.retry").unwrap()
}

fn in_lane<D: Place>(ground: &Ground<D>) -> Vec<Message> {
    let all = ground.broker.published().into_iter().map(|(_, message)| message);
    all.filter(|message| message.topic == retry_topic()).collect()
}

async fn numbers<D: Place>(ground: &Ground<D>, key: &str) -> Vec<i64> {
    let effects = ground.database.effects().await.into_iter().filter(|effect| effect.key.as_deref() == Some(key));
    effects.filter_map(|effect| effect.sequence).collect()
}

async fn a_delayed_message_is_acknowledged_and_its_key_waits_behind_it_in_the_table<D: Place>(ground: Ground<D>) {
    ground.publish(&[message("a", 1, "failing"), message("a", 2, "good"), message("b", 1, "good")]).await;
    ground.publish(&[message("a", 3, "good"), message("b", 2, "good")]).await;
    let running = ground.consumer(for_long(RetryLane::Database), plain(apply::<D>));
    // None of it takes up room of the broker, although it is neither done nor given up.
    ground.is_drained().await;
    running.stop().await;
    let stats = ground.database.dead_letter_stats().await.unwrap();
    assert_eq!((stats.delayed, stats.waiting, stats.parked), (1, 2, 0));
    assert_eq!((numbers(&ground, "a").await, numbers(&ground, "b").await), (vec![], vec![1, 2]));
    let letter = ground.letters().await.into_iter().find(|letter| letter.status == DeadLetterStatus::Delayed).unwrap();
    assert_eq!((letter.sequence, letter.attempts, letter.error.as_str()), (Some(1), 1, "it never works"));
    assert!(letter.retry_at > Some(Timestamp::now()));
}

async fn a_delayed_message_goes_on_counting_in_another_process<D: Place>(ground: Ground<D>) {
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let seen = attempts.clone();
    let handler = move || {
        let seen = seen.clone();
        handler_fn::<D, _>(move |context| {
            seen.lock().unwrap().push(context.attempt);
            Box::pin(async { Err(Failure::retry("not this time")) })
        })
    };
    ground.publish(&[message("a", 1, "good")]).await;
    for process in 1..=3 {
        let running = ground.consumer(for_long(RetryLane::Database), handler());
        // Its time comes once in each of them. A try that nobody has noted when it is stopped is made again.
        let due = "UPDATE landfall_dead_letter SET retry_at = first_seen WHERE status = 'delayed' AND attempts <";
        eventually(PATIENCE, "another try is noted", async || {
            ground.database.run(&format!("{due} {process}")).await;
            ground.letters().await.first().is_some_and(|letter| letter.attempts >= process)
        })
        .await;
        running.stop().await;
    }
    assert_eq!(*attempts.lock().unwrap(), [1, 2, 3]);
    let letter = ground.letters().await.remove(0);
    assert_eq!((letter.status, letter.attempts), (DeadLetterStatus::Parked, 3));
}

async fn without_order_a_delayed_message_holds_nobody<D: Place>(ground: Ground<D>) {
    ground.publish(&[message("a", 1, "failing"), message("a", 2, "good"), message("a", 3, "flaky")]).await;
    let options = Options { order: Order::Unordered, backoff: QUICK, ..for_long(RetryLane::Database) };
    let running = ground.consumer(options, plain(apply::<D>));
    ground.effects_become(2).await;
    ground.is_drained().await;
    eventually(PATIENCE, "the first is parked", async || {
        ground.database.dead_letter_stats().await.unwrap().parked == 1
    })
    .await;
    running.stop().await;
    assert_eq!(numbers(&ground, "a").await.len(), 2);
    assert_eq!(ground.letters().await.iter().map(|letter| letter.attempts).max(), Some(3));
}

/// The same random histories as those of batches: effects, letters and order are those of a consumer without a lane.
async fn what_is_delayed_in_the_table_ends_as_if_it_had_waited_here<D: Place>(first: Ground<D>) {
    let seed = rand::random_range(0..1_000_000);
    let random = &mut StdRng::seed_from_u64(seed);
    let mut ground = Some(first);
    for _ in 0..2 {
        let history = history(random);
        let (effects, letters) = expected(&history);
        let [done, open] = [&effects, &letters].map(|side| side.values().map(Vec::len).sum::<usize>());
        let ground = match ground.take() {
            Some(ground) => ground,
            None => Ground::<D>::new().await.unwrap(),
        };
        ground.publish(&history).await;
        let running = ground.consumer(lane(RetryLane::Database), plain(apply::<D>));
        eventually(PATIENCE, &format!("{done} effects and {open} letters, seed {seed}"), async || {
            let stats = ground.database.dead_letter_stats().await.unwrap();
            ground.database.effects().await.len() == done
                && (stats.delayed, stats.parked + stats.waiting) == (0, open as u64)
        })
        .await;
        // Copies change nothing, and may be last.
        ground.is_drained().await;
        running.stop().await;
        let mut found = ground.account().await.effects;
        found.retain(|key, _| key.is_some());
        for (key, of_key) in found {
            let sequences: Vec<_> = of_key.iter().filter_map(|effect| effect.sequence).collect();
            assert_eq!(Some(&sequences), effects.get(&key), "{key:?}, seed {seed}");
        }
        ground.all_is_acknowledged().await;
    }
}

async fn a_topic_lane_takes_what_has_no_order_with_everything_about_its_failure<D: Place>(ground: Ground<D>) {
    let mut failing = message("a", 7, "failing");
    failing.headers.insert("tenant", "北京").unwrap();
    ground.publish(&[message("a", 6, "good"), failing.clone(), message("a", 8, "good")]).await;
    let options = Options { order: Order::Unordered, ..for_long(RetryLane::Topic) };
    let running = ground.consumer(options, plain(apply::<D>));
    eventually(PATIENCE, "it is in the lane", async || in_lane(&ground).len() == 1).await;
    ground.is_drained().await;
    running.stop().await;
    let moved = in_lane(&ground).remove(0);
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
    assert_eq!(ground.broker.unfinished(&retry_topic(), &group()), 1, "not acknowledged before it was tried");
    assert!(ground.letters().await.is_empty());
}

/// Copies of everything come from the main topic besides.
async fn what_returns_from_a_topic_lane_takes_effect_once_or_is_parked_in_the_end<D: Place>(ground: Ground<D>) {
    let kind = |n| ["good", "flaky", "good", "failing"][n as usize % 4];
    let messages: Vec<_> = (0..40).map(|n| message("a", n, kind(n))).collect();
    let options = Options { order: Order::Unordered, ..lane(RetryLane::Topic) };
    let members = [1, 8].map(|batch| {
        let options = Options { batch, ..options.clone() };
        ground.consumer(
            options,
            handler_fn::<D, _>(|context| {
                assert_eq!(context.message.topic, topic(), "it is the message that was sent");
                assert!(context.message.headers.is_empty(), "{:?}", context.message.headers);
                Box::pin(apply(context))
            }),
        )
    });
    // Another group has nothing to do with what fails in this one.
    let elsewhere = GroupName::new("payment").unwrap();
    let (database, broker) = (ground.database.clone(), ground.broker.clone());
    let stop = CancellationToken::new();
    let other = Consumer::new(database, broker, topic(), elsewhere.clone(), plain(content::<D>), options);
    let other = tokio::spawn(other.run(stop.clone()));
    ground.publish(&messages).await;
    ground.publish(&messages).await;
    ground.settle(40).await;
    ground.is_drained().await;
    eventually(PATIENCE, "nothing is left in the lane", async || {
        ground.broker.unfinished(&retry_topic(), &group()) + ground.broker.unfinished(&retry_topic(), &elsewhere) == 0
    })
    .await;
    for member in members {
        member.stop().await;
    }
    stop.cancel();
    other.await.unwrap().unwrap();
    let mut done = numbers(&ground, "a").await;
    done.sort();
    assert_eq!(done, (0..40).filter(|n| kind(*n) != "failing").collect::<Vec<_>>(), "each once");
    let letters = ground.letters().await;
    assert_eq!(letters.len(), 10);
    assert!(letters.iter().all(|letter| letter.attempts == 3 && letter.original_offset.is_some()), "{letters:?}");
}

/// Has no effect that anybody could see, and never fails.
async fn content<D: Place>(_: landfall::consume::Context<'_, D>) -> Result<(), Failure> {
    Ok(())
}

async fn a_topic_lane_leaves_ordered_keys_where_they_are<D: Place>(ground: Ground<D>) {
    let keyless = Message { key: None, ..message("none", 1, "flaky") };
    ground.publish(&[message("a", 1, "flaky"), keyless, message("a", 2, "good"), message("a", 3, "flaky")]).await;
    let running = ground.consumer(lane(RetryLane::Topic), plain(apply::<D>));
    ground.effects_become(4).await;
    ground.is_drained().await;
    running.stop().await;
    assert_eq!(numbers(&ground, "a").await, [1, 2, 3]);
    assert_eq!(in_lane(&ground).iter().map(|moved| moved.key.clone()).collect::<Vec<_>>(), [None]);
}

async fn what_a_topic_lane_does_not_take_waits_here<D: Place>(ground: Ground<D>) {
    for fault in [Fault::RefusePermanently, Fault::Unavailable, Fault::UnknownAndLost, Fault::UnknownAndStored] {
        let before = ground.database.effects().await.len();
        ground.broker.fail_when(|message| message.topic == retry_topic(), fault);
        ground.publish(&[message("a", 1, "flaky"), message("b", 1, "good")]).await;
        let options = Options { order: Order::Unordered, ..lane(RetryLane::Topic) };
        let running = ground.consumer(options, plain(apply::<D>));
        ground.effects_become(before + 2).await;
        ground.is_drained().await;
        running.stop().await;
        assert_eq!(ground.database.effects().await.len(), before + 2, "{fault:?}");
        ground.broker.heal();
    }
}

/// Copies in several members at once, delays, lost acknowledgements and memberships: in the main topic and in the lane.
async fn an_unruly_broker_changes_nothing_about_a_lane<D: Place>(first: Ground<D>) {
    let mut first = Some(first);
    for (retry_lane, order) in [(RetryLane::Database, Order::ByKey), (RetryLane::Topic, Order::Unordered)] {
        let ground = match first.take() {
            Some(ground) => ground,
            None => Ground::<D>::new().await.unwrap(),
        };
        let troubles = ChaosOptions::everything(rand::random_range(0..1_000_000));
        let (seed, broker) = (troubles.seed, ChaosBroker::around(ground.broker.clone(), troubles));
        let kind = |n| if n % 5 == 0 { "flaky" } else { "good" };
        let messages: Vec<_> = (1..=100).map(|n| message(&format!("key-{}", n % 4), n, kind(n))).collect();
        ground.publish(&messages).await;
        let (database, shared) = (ground.database.clone(), Arc::new(broker.clone()) as Arc<dyn Broker>);
        let options = Options { order, ..lane(retry_lane) };
        let consumer = Consumer::new(database, shared, topic(), group(), plain(apply::<D>), options);
        let stop = CancellationToken::new();
        let consumer = tokio::spawn(consumer.run(stop.clone()));
        ground.effects_become(100).await;
        broker.heal();
        eventually(PATIENCE, "no copy is left", async || {
            let unfinished = |topic: &TopicName| ground.broker.unfinished(topic, &group());
            unfinished(&topic()) + unfinished(&retry_topic()) == 0 && broker.unacked_duplicates() == 0
        })
        .await;
        stop.cancel();
        consumer.await.unwrap().unwrap();
        for key in 0..4 {
            let mut found = numbers(&ground, &format!("key-{key}")).await;
            if order == Order::Unordered {
                found.sort();
            }
            let sent: Vec<_> = (1..=100).filter(|n| n % 4 == key).collect();
            assert_eq!(found, sent, "{retry_lane:?}, seed {seed}, {:?}", broker.counts());
        }
        assert!(ground.letters().await.iter().all(|letter| letter.status == DeadLetterStatus::Done));
    }
}

/// Moving it aside would empty the broker's backlog into the lane for as long as the outage takes.
async fn what_a_dependency_that_is_gone_keeps_waiting_is_not_moved_to_a_lane<D: Place>(ground: Ground<D>) {
    let tries = Arc::new(Mutex::new(0));
    let counted = tries.clone();
    let handler = handler_fn::<D, _>(move |context| {
        let mut tries = counted.lock().unwrap();
        *tries += 1;
        // Far more often than the maximum allows.
        let is_up = *tries > 20;
        Box::pin(async move {
            apply(context).await?;
            if is_up { Ok(()) } else { Err(Failure::retry("refused").with_code(ErrorCode::DEPENDENCY)) }
        })
    });
    ground.publish(&[message("a", 1, "good"), message("a", 2, "good")]).await;
    let running = ground.consumer(lane(RetryLane::Database), handler);
    ground.effects_become(2).await;
    running.stop().await;
    assert!(ground.letters().await.is_empty(), "neither delayed nor parked: {:?}", ground.letters().await);
    assert_eq!(numbers(&ground, "a").await, [1, 2]);
}

/// So that a lane of a topic with the longest name is refused when the consumer is started, and not when it is needed.
#[tokio::test]
async fn a_topic_whose_lane_would_have_no_name_is_refused_at_the_start() {
    let Some(ground) = Ground::<landfall_sqlite::Sqlite>::new().await else { return };
    let long = TopicName::new("x".repeat(249)).unwrap();
    let options = Options { retry_lane: RetryLane::Topic, ..options() };
    let handler = plain(content::<landfall_sqlite::Sqlite>);
    let consumer = Consumer::new(ground.database.clone(), ground.broker.clone(), long, group(), handler, options);
    assert!(consumer.run(CancellationToken::new()).await.is_err());
}
