//! What people see: topics and their sizes, and what stands in them, without taking part.

use std::collections::BTreeMap;
use std::time::Duration;

use landfall_core::{Message, StartAt, StoredMessage, Timestamp};

use super::stage::{SOON, read_all, take_many};
use super::{BrokerFixture, Stage};
use crate::conformance::sample::{ids, keyed, series, sorted, topic};
use crate::eventually;

fn messages_of(stored: &[StoredMessage]) -> Vec<landfall_core::MessageId> {
    stored.iter().map(|stored| stored.message.as_ref().unwrap().id).collect()
}

/// Per partition the offsets must grow.
fn assert_in_offset_order(stored: &[StoredMessage]) {
    let mut last = BTreeMap::new();
    for position in stored.iter().map(|stored| stored.position) {
        if let Some(before) = last.insert(position.partition, position.offset) {
            assert!(before < position.offset, "offset {} came after {before}", position.offset);
        }
    }
}

pub async fn topics_are_listed_by_name_with_their_size<F: BrokerFixture>(stage: Stage<F>) {
    let replay = stage.capabilities().replay;
    let before = stage.broker().topics().await.unwrap();
    assert!(before.iter().all(|info| info.messages == 0), "a new broker has nothing in it: {before:?}");
    assert!(before.is_empty() || !replay, "a new broker has no topics: {before:?}");
    let mut elsewhere = keyed("a", 1);
    elsewhere.topic = topic("billing");
    stage.publish(&series("a", 3)).await;
    stage.publish(&[elsewhere]).await;
    // Some brokers count what they took a moment later.
    let sizes = async || {
        let mut topics = stage.broker().topics().await.unwrap();
        topics.retain(|info| replay || info.messages > 0);
        assert!(topics.iter().all(|info| info.partitions >= 1), "{topics:?}");
        assert!(!replay || topics.iter().all(|info| info.bytes != Some(0)), "{topics:?}");
        topics.into_iter().map(|info| (info.topic.to_string(), info.messages)).collect::<Vec<_>>()
    };
    let expected = [("billing".to_owned(), 1), ("orders".to_owned(), 3)];
    eventually(SOON, "the topics are listed with what is in them", async || sizes().await == expected).await;
}

pub async fn a_reader_from_the_beginning_sees_everything_in_order<F: BrokerFixture>(stage: Stage<F>) {
    if !stage.capabilities().replay {
        return;
    }
    let messages: Vec<Message> = (1..=10).flat_map(|n| ["a", "b", "c"].map(|key| keyed(key, n))).collect();
    stage.publish(&messages).await;
    let mut reader = stage.reader(StartAt::Beginning).await;
    let stored = read_all(&mut reader).await;
    assert_eq!(sorted(messages_of(&stored)), sorted(ids(&messages)));
    assert_in_offset_order(&stored);
    assert!(stored.iter().all(|stored| messages.contains(stored.message.as_ref().unwrap())));

    // At the end it waits for nobody, and goes on where it stopped.
    assert!(reader.read(10).await.unwrap().is_empty());
    let more = series("d", 2);
    stage.publish(&more).await;
    assert_eq!(messages_of(&read_all(&mut reader).await), ids(&more));
}

pub async fn a_reader_from_the_end_sees_only_what_comes<F: BrokerFixture>(stage: Stage<F>) {
    if !stage.capabilities().replay {
        return;
    }
    stage.publish(&series("a", 5)).await;
    let mut reader = stage.reader(StartAt::End).await;
    assert!(reader.read(10).await.unwrap().is_empty());
    let later = series("a", 2);
    stage.publish(&later).await;
    assert_eq!(messages_of(&read_all(&mut reader).await), ids(&later));
}

pub async fn a_reader_from_an_offset_sees_the_rest<F: BrokerFixture>(stage: Stage<F>) {
    if !stage.capabilities().replay {
        return;
    }
    // One key, and so one partition, whose offsets are what the publisher was told.
    let messages = series("a", 6);
    let positions = stage.publish(&messages).await;
    let mut reader = stage.reader(StartAt::Offset(positions[2].offset)).await;
    let stored = read_all(&mut reader).await;
    assert_eq!(messages_of(&stored), ids(&messages[2..]));
    assert_eq!(stored.iter().map(|stored| stored.position).collect::<Vec<_>>(), positions[2..]);

    let mut beyond = stage.reader(StartAt::Offset(positions[5].offset + 1)).await;
    assert!(beyond.read(10).await.unwrap().is_empty());
}

pub async fn a_reader_from_a_time_sees_what_was_taken_since<F: BrokerFixture>(stage: Stage<F>) {
    if !stage.capabilities().replay {
        return;
    }
    let (earlier, later) = (series("a", 4), series("b", 3));
    let before = Timestamp::now();
    stage.publish(&earlier).await;
    let moment = next_moment().await;
    stage.publish(&later).await;
    let ahead = Timestamp::from_millis(Timestamp::now().as_millis() + 60_000);

    let everything = read_all(&mut stage.reader(StartAt::Time(before)).await).await;
    assert_eq!(sorted(messages_of(&everything)), sorted(ids(&[earlier, later.clone()].concat())));
    assert_eq!(messages_of(&read_all(&mut stage.reader(StartAt::Time(moment)).await).await), ids(&later));
    let mut from_ahead = stage.reader(StartAt::Time(ahead)).await;
    assert!(from_ahead.read(10).await.unwrap().is_empty(), "nothing was taken after that, so it begins at the end");
    stage.publish(&series("c", 1)).await;
    assert_eq!(from_ahead.read(10).await.unwrap().len(), 1);
}

/// A time that is later than everything before this call and not later than anything after it.
async fn next_moment() -> Timestamp {
    let before = Timestamp::now();
    loop {
        // The wall clock decides and not the runtime's, which may be standing still.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let now = Timestamp::now();
        if now > before {
            return now;
        }
    }
}

pub async fn reading_takes_nothing_from_a_group<F: BrokerFixture>(stage: Stage<F>) {
    if !stage.capabilities().replay {
        return;
    }
    let messages = series("a", 5);
    stage.publish(&messages).await;
    let mut subscriber = stage.subscribe("stock").await;
    assert_eq!(read_all(&mut stage.reader(StartAt::Beginning).await).await.len(), 5);
    assert_eq!(sorted(ids(&take_many(&mut subscriber, 5).await)), sorted(ids(&messages)));
    assert_eq!(read_all(&mut stage.reader(StartAt::Beginning).await).await.len(), 5);
}
