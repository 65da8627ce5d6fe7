//! Publishing: one outcome per message, everything kept, and the order of each key.

use std::collections::BTreeSet;

use landfall_core::{ErrorCode, Limits, Message, Mode, Outcome, StartAt, SystemHeader};

use super::stage::{assert_ordered_by_key, publish, read_all, take, take_many};
use super::{BrokerFixture, Stage};
use crate::conformance::sample::{elaborate, group, ids, keyed, keyless, series, sorted, topic};

pub async fn every_message_has_one_outcome_in_order<F: BrokerFixture>(stage: Stage<F>) {
    let mut batch: Vec<Message> = (1..=10).flat_map(|n| ["a", "b", "c"].map(|key| keyed(key, n))).collect();
    batch.extend((0..10).map(|_| keyless()));
    stage.publish(&batch).await;
    let mut subscriber = stage.subscribe("stock").await;
    assert_eq!(sorted(ids(&take_many(&mut subscriber, batch.len()).await)), sorted(ids(&batch)));
}

pub async fn every_message_stands_where_its_outcome_said<F: BrokerFixture>(stage: Stage<F>) {
    if !stage.capabilities().replay {
        return;
    }
    let mut batch = series("a", 10);
    batch.extend((0..10).map(|_| keyless()));
    let positions = stage.publish(&batch).await;
    assert_eq!(positions.iter().collect::<BTreeSet<_>>().len(), batch.len(), "a place for each");
    let stored = read_all(&mut stage.reader(StartAt::Beginning).await).await;
    assert_eq!(stored.len(), batch.len());
    for (message, position) in batch.iter().zip(positions) {
        let found = stored.iter().find(|stored| stored.position == position).expect("something stands there");
        assert_eq!(found.message.as_ref().unwrap().id, message.id);
    }
}

pub async fn an_empty_batch_has_an_empty_answer<F: BrokerFixture>(stage: Stage<F>) {
    assert!(stage.broker().publisher().publish(&[]).await.is_empty());
}

pub async fn what_is_too_large_is_refused_and_holds_back_only_its_key<F: BrokerFixture>(stage: Stage<F>) {
    let Some(limit) = stage.capabilities().payload_bytes else { return };
    let mut batch = vec![keyed("a", 1), keyed("b", 1), keyed("b", 2), keyed("a", 2)];
    batch[1].payload = vec![7; limit + 100_000].into();
    let outcomes = stage.broker().publisher().publish(&batch).await;
    let [Outcome::Accepted(_), Outcome::Refused(large), Outcome::Refused(behind), Outcome::Accepted(_)] = &outcomes[..]
    else {
        panic!("{outcomes:?}")
    };
    assert_eq!((&large.code, large.retriable), (&ErrorCode::TOO_LARGE, false), "{large:?}");
    assert_eq!((&behind.code, behind.retriable), (&ErrorCode::PREDECESSOR, true), "{behind:?}");
    let mut subscriber = stage.subscribe("stock").await;
    let mut delivered = ids(&take_many(&mut subscriber, 2).await);
    if !stage.capabilities().ordered_by_key {
        delivered.sort();
    }
    assert_eq!(delivered, [batch[0].id, batch[3].id]);
}

pub async fn a_copy_is_accepted_and_not_stored_again<F: BrokerFixture>(stage: Stage<F>) {
    if !stage.capabilities().deduplicates {
        return;
    }
    let messages = series("a", 3);
    stage.publish(&messages[..2]).await;
    stage.publish(&messages[..1]).await;
    stage.publish(&messages).await;
    let mut subscriber = stage.subscribe("stock").await;
    let last = keyed("a", 4);
    stage.publish(std::slice::from_ref(&last)).await;
    let delivered = take_many(&mut subscriber, 4).await;
    assert_eq!(ids(&delivered), [ids(&messages), vec![last.id]].concat());
}

/// A message that failed is sent again under its own id, with the number of its attempts: to the retry lane, and to the
/// topic of dead letters. A broker that took it for a copy would lose it.
pub async fn each_send_of_a_message_that_was_moved_aside_is_stored<F: BrokerFixture>(stage: Stage<F>) {
    let message = keyed("a", 1);
    let moved = |attempts: u32| {
        let mut moved = message.clone();
        moved.headers.note(SystemHeader::Attempts, attempts);
        moved
    };
    for attempts in 1..=3 {
        stage.publish(&[moved(attempts)]).await;
    }
    if stage.capabilities().deduplicates {
        stage.publish(&[moved(2)]).await;
    }
    let last = keyed("a", 2);
    stage.publish(std::slice::from_ref(&last)).await;
    let mut subscriber = stage.subscribe("stock").await;
    let mut delivered = take_many(&mut subscriber, 4).await;
    // Not every broker keeps order, which is another case.
    delivered
        .sort_by_key(|message| (message.sequence, message.headers.noted(SystemHeader::Attempts).map(str::to_owned)));
    assert_eq!(delivered, [moved(1), moved(2), moved(3), last], "each once, and as it was sent");
}

pub async fn everything_about_a_message_survives_the_broker<F: BrokerFixture>(stage: Stage<F>) {
    let orders = topic("orders");
    let limit = Limits::default().payload_bytes;
    let largest = stage.capabilities().payload_bytes.map_or(limit, |bytes| bytes.min(limit));
    let mut messages = vec![elaborate(), keyless(), Message::new(orders.clone(), Vec::new()).with_sequence(i64::MAX)];
    messages.extend(Mode::ALL.map(|mode| keyed("modes", 1).with_mode(mode)));
    messages.push(Message::new(orders.clone(), vec![7; largest]));
    messages[0].topic = orders;
    stage.publish(&messages).await;

    let mut subscriber = stage.subscribe("stock").await;
    let mut waiting: Vec<&Message> = messages.iter().collect();
    while !waiting.is_empty() {
        let arrived = take(&mut subscriber).await;
        let place = waiting.iter().position(|sent| sent.id == arrived.id).expect("each arrives once");
        // Not assert_eq, so that a failure does not print a mebibyte.
        let sent = waiting.swap_remove(place);
        assert!(&arrived == sent, "message {} ({}) is not what was sent", sent.id, sent.kind.as_str());
    }
}

pub async fn the_order_of_a_key_survives_many_publishers<F: BrokerFixture>(stage: Stage<F>) {
    if !stage.capabilities().ordered_by_key {
        return;
    }
    let mut tasks = tokio::task::JoinSet::new();
    let mut all = Vec::new();
    for task in 0..6 {
        // Each task has keys of its own and waits for its outcomes before it goes on, as a relay does.
        let publisher = stage.broker().publisher();
        let messages: Vec<_> = (1..=25).flat_map(|n| [0, 1].map(|key| keyed(&format!("{task}-{key}"), n))).collect();
        all.extend(ids(&messages));
        tasks.spawn(async move {
            for batch in messages.chunks(7) {
                publish(&*publisher, batch).await;
            }
        });
    }
    tasks.join_all().await;
    // A topic of its own for one more publisher must not be disturbed.
    let mut other = series("x", 3);
    other.iter_mut().for_each(|message| message.topic = topic("payments"));
    stage.publish(&other).await;

    let mut subscriber = stage.subscribe("stock").await;
    let delivered = take_many(&mut subscriber, all.len()).await;
    assert_eq!(sorted(ids(&delivered)), sorted(all));
    assert_ordered_by_key(&delivered);
    let mut payments = stage.broker().subscribe(&topic("payments"), &group("stock")).await.unwrap();
    assert_eq!(ids(&take_many(&mut payments, 3).await), ids(&other));
}
