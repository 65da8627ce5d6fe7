//! Publishing: one outcome per message, all fields, and key order.

use std::collections::BTreeSet;

use landfall_core::{ErrorCode, Limits, Message, Mode, Outcome, StartAt, SystemHeader};

use super::harness::{assert_ordered_by_key, consume_many, consume_one, publish, read_all};
use super::{BrokerFixture, Harness};
use crate::conformance::sample::{elaborate, group, ids, keyed, keyless, series, sorted, topic};

pub async fn publish_returns_one_outcome_per_message_in_order<F: BrokerFixture>(harness: Harness<F>) {
    let mut batch: Vec<Message> = (1..=10).flat_map(|n| ["a", "b", "c"].map(|key| keyed(key, n))).collect();
    batch.extend((0..10).map(|_| keyless()));
    harness.publish(&batch).await;
    let mut subscriber = harness.subscribe("stock").await;
    assert_eq!(sorted(ids(&consume_many(&mut subscriber, batch.len()).await)), sorted(ids(&batch)));
}

pub async fn message_is_stored_at_the_position_of_its_outcome<F: BrokerFixture>(harness: Harness<F>) {
    let mut batch = series("a", 10);
    batch.extend((0..10).map(|_| keyless()));
    let positions = harness.publish(&batch).await;
    assert_eq!(positions.iter().collect::<BTreeSet<_>>().len(), batch.len(), "two messages have the same position");
    let stored = read_all(&mut harness.reader(StartAt::Beginning).await).await;
    assert_eq!(stored.len(), batch.len());
    for (message, position) in batch.iter().zip(positions) {
        let found = stored.iter().find(|stored| stored.position == position).expect("no message at the position");
        assert_eq!(found.message.as_ref().unwrap().id, message.id);
    }
}

pub async fn empty_batch_returns_no_outcomes<F: BrokerFixture>(harness: Harness<F>) {
    assert!(harness.broker().publisher().publish(&[]).await.is_empty());
}

pub async fn oversized_message_is_refused_and_blocks_only_its_key<F: BrokerFixture>(harness: Harness<F>) {
    let limit = harness.capabilities().payload_bytes.expect("the broker declares no limit");
    let mut batch = vec![keyed("a", 1), keyed("b", 1), keyed("b", 2), keyed("a", 2)];
    batch[1].payload = vec![7; limit + 100_000].into();
    let outcomes = harness.broker().publisher().publish(&batch).await;
    let [Outcome::Accepted(_), Outcome::Refused(large), Outcome::Refused(behind), Outcome::Accepted(_)] = &outcomes[..]
    else {
        panic!("{outcomes:?}")
    };
    assert_eq!((&large.code, large.retriable), (&ErrorCode::TOO_LARGE, false), "{large:?}");
    assert_eq!((&behind.code, behind.retriable), (&ErrorCode::PREDECESSOR, true), "{behind:?}");
    let mut subscriber = harness.subscribe("stock").await;
    let mut delivered = ids(&consume_many(&mut subscriber, 2).await);
    if !harness.capabilities().ordered_by_key {
        delivered.sort();
    }
    assert_eq!(delivered, [batch[0].id, batch[3].id]);
}

pub async fn duplicate_is_accepted_and_stored_once<F: BrokerFixture>(harness: Harness<F>) {
    let messages = series("a", 3);
    harness.publish(&messages[..2]).await;
    harness.publish(&messages[..1]).await;
    harness.publish(&messages).await;
    let mut subscriber = harness.subscribe("stock").await;
    let last = keyed("a", 4);
    harness.publish(std::slice::from_ref(&last)).await;
    let delivered = consume_many(&mut subscriber, 4).await;
    assert_eq!(ids(&delivered), [ids(&messages), vec![last.id]].concat());
}

/// A failed message is published again under its own id, with its number of attempts: to the retry lane and to the
/// dead-letter topic. A broker that deduplicates it would lose it.
pub async fn retry_of_a_failed_message_is_not_deduplicated<F: BrokerFixture>(harness: Harness<F>) {
    let message = keyed("a", 1);
    let retried = |attempts: u32| {
        let mut retried = message.clone();
        retried.headers.note(SystemHeader::Attempts, attempts);
        retried
    };
    for attempts in 1..=3 {
        harness.publish(&[retried(attempts)]).await;
    }
    if harness.capabilities().deduplicates {
        harness.publish(&[retried(2)]).await;
    }
    let last = keyed("a", 2);
    harness.publish(std::slice::from_ref(&last)).await;
    let mut subscriber = harness.subscribe("stock").await;
    let mut delivered = consume_many(&mut subscriber, 4).await;
    // Not every broker keeps order, and other cases test it.
    delivered
        .sort_by_key(|message| (message.sequence, message.headers.noted(SystemHeader::Attempts).map(str::to_owned)));
    assert_eq!(delivered, [retried(1), retried(2), retried(3), last], "each is delivered once and unchanged");
}

pub async fn all_message_fields_survive_the_broker<F: BrokerFixture>(harness: Harness<F>) {
    let orders = topic("orders");
    let limit = Limits::default().payload_bytes;
    let largest = harness.capabilities().payload_bytes.map_or(limit, |bytes| bytes.min(limit));
    let mut messages = vec![elaborate(), keyless(), Message::new(orders.clone(), Vec::new()).with_sequence(i64::MAX)];
    messages.extend(Mode::ALL.map(|mode| keyed("modes", 1).with_mode(mode)));
    messages.push(Message::new(orders.clone(), vec![7; largest]));
    messages[0].topic = orders;
    harness.publish(&messages).await;

    let mut subscriber = harness.subscribe("stock").await;
    let mut waiting: Vec<&Message> = messages.iter().collect();
    while !waiting.is_empty() {
        let arrived = consume_one(&mut subscriber).await;
        let index = waiting.iter().position(|sent| sent.id == arrived.id).expect("unexpected or repeated delivery");
        // Not `assert_eq!`, so that a failure does not print a mebibyte.
        let sent = waiting.swap_remove(index);
        assert!(&arrived == sent, "message {} ({}) changed", sent.id, sent.kind.as_str());
    }
}

pub async fn key_order_holds_with_many_publishers<F: BrokerFixture>(harness: Harness<F>) {
    let mut tasks = tokio::task::JoinSet::new();
    let mut all = Vec::new();
    for task in 0..6 {
        // Each task has its own keys and waits for the outcomes of a batch before the next, as a relay does.
        let publisher = harness.broker().publisher();
        let messages: Vec<_> = (1..=25).flat_map(|n| [0, 1].map(|key| keyed(&format!("{task}-{key}"), n))).collect();
        all.extend(ids(&messages));
        tasks.spawn(async move {
            for batch in messages.chunks(7) {
                publish(&*publisher, batch).await;
            }
        });
    }
    tasks.join_all().await;
    // Another topic must not be affected.
    let mut other = series("x", 3);
    other.iter_mut().for_each(|message| message.topic = topic("payments"));
    harness.publish(&other).await;

    let mut subscriber = harness.subscribe("stock").await;
    let delivered = consume_many(&mut subscriber, all.len()).await;
    assert_eq!(sorted(ids(&delivered)), sorted(all));
    assert_ordered_by_key(&delivered);
    let mut payments = harness.broker().subscribe(&topic("payments"), &group("stock")).await.unwrap();
    assert_eq!(ids(&consume_many(&mut payments, 3).await), ids(&other));
}
