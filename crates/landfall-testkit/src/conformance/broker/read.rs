//! Topic listing and readers outside of any group.

use std::collections::BTreeMap;
use std::time::Duration;

use landfall_core::{Message, StartAt, StoredMessage, Timestamp};

use super::harness::{TIMEOUT, consume_many, read_all};
use super::{BrokerFixture, Harness};
use crate::conformance::sample::{ids, keyed, series, sorted, topic};
use crate::eventually;

fn ids_of(stored: &[StoredMessage]) -> Vec<landfall_core::MessageId> {
    stored.iter().map(|stored| stored.message.as_ref().unwrap().id).collect()
}

/// Asserts that offsets grow within each partition.
fn assert_in_offset_order(stored: &[StoredMessage]) {
    let mut last = BTreeMap::new();
    for position in stored.iter().map(|stored| stored.position) {
        if let Some(before) = last.insert(position.partition, position.offset) {
            assert!(before < position.offset, "offset {} was read after {before}", position.offset);
        }
    }
}

pub async fn topics_are_listed_by_name_with_their_size<F: BrokerFixture>(harness: Harness<F>) {
    let replay = harness.capabilities().replay;
    let before = harness.broker().topics().await.unwrap();
    assert!(before.iter().all(|info| info.messages == 0), "a new broker is not empty: {before:?}");
    assert!(before.is_empty() || !replay, "a new broker has topics: {before:?}");
    let mut elsewhere = keyed("a", 1);
    elsewhere.topic = topic("billing");
    harness.publish(&series("a", 3)).await;
    harness.publish(&[elsewhere]).await;
    // Some brokers update their counters with a delay.
    let sizes = async || {
        let mut topics = harness.broker().topics().await.unwrap();
        topics.retain(|info| replay || info.messages > 0);
        assert!(topics.iter().all(|info| info.partitions >= 1), "{topics:?}");
        assert!(!replay || topics.iter().all(|info| info.bytes != Some(0)), "{topics:?}");
        topics.into_iter().map(|info| (info.topic.to_string(), info.messages)).collect::<Vec<_>>()
    };
    let expected = [("billing".to_owned(), 1), ("orders".to_owned(), 3)];
    eventually(TIMEOUT, "the topics are listed with their sizes", async || sizes().await == expected).await;
}

pub async fn reader_from_the_beginning_reads_everything_in_order<F: BrokerFixture>(harness: Harness<F>) {
    let messages: Vec<Message> = (1..=10).flat_map(|n| ["a", "b", "c"].map(|key| keyed(key, n))).collect();
    harness.publish(&messages).await;
    let mut reader = harness.reader(StartAt::Beginning).await;
    let stored = read_all(&mut reader).await;
    assert_eq!(sorted(ids_of(&stored)), sorted(ids(&messages)));
    assert_in_offset_order(&stored);
    assert!(stored.iter().all(|stored| messages.contains(stored.message.as_ref().unwrap())));

    // At the end the reader returns at once, and later continues from there.
    assert!(reader.read(10).await.unwrap().is_empty());
    let more = series("d", 2);
    harness.publish(&more).await;
    assert_eq!(ids_of(&read_all(&mut reader).await), ids(&more));
}

pub async fn reader_from_the_end_reads_only_new_messages<F: BrokerFixture>(harness: Harness<F>) {
    harness.publish(&series("a", 5)).await;
    let mut reader = harness.reader(StartAt::End).await;
    assert!(reader.read(10).await.unwrap().is_empty());
    let later = series("a", 2);
    harness.publish(&later).await;
    assert_eq!(ids_of(&read_all(&mut reader).await), ids(&later));
}

pub async fn reader_from_an_offset_reads_the_rest<F: BrokerFixture>(harness: Harness<F>) {
    // One key and so one partition: offsets are comparable to those of the publisher.
    let messages = series("a", 6);
    let positions = harness.publish(&messages).await;
    let mut reader = harness.reader(StartAt::Offset(positions[2].offset)).await;
    let stored = read_all(&mut reader).await;
    assert_eq!(ids_of(&stored), ids(&messages[2..]));
    assert_eq!(stored.iter().map(|stored| stored.position).collect::<Vec<_>>(), positions[2..]);

    let mut beyond = harness.reader(StartAt::Offset(positions[5].offset + 1)).await;
    assert!(beyond.read(10).await.unwrap().is_empty());
}

pub async fn reader_from_a_time_reads_messages_stored_since<F: BrokerFixture>(harness: Harness<F>) {
    let (earlier, later) = (series("a", 4), series("b", 3));
    let before = Timestamp::now();
    harness.publish(&earlier).await;
    let between = next_millisecond().await;
    harness.publish(&later).await;
    let ahead = Timestamp::from_millis(Timestamp::now().as_millis() + 60_000);

    let everything = read_all(&mut harness.reader(StartAt::Time(before)).await).await;
    assert_eq!(sorted(ids_of(&everything)), sorted(ids(&[earlier, later.clone()].concat())));
    assert_eq!(ids_of(&read_all(&mut harness.reader(StartAt::Time(between)).await).await), ids(&later));
    let mut from_ahead = harness.reader(StartAt::Time(ahead)).await;
    assert!(from_ahead.read(10).await.unwrap().is_empty(), "a reader from a future time starts at the end");
    harness.publish(&series("c", 1)).await;
    assert_eq!(from_ahead.read(10).await.unwrap().len(), 1);
}

/// Returns a timestamp later than all timestamps before this call, and not later than any after it.
async fn next_millisecond() -> Timestamp {
    let before = Timestamp::now();
    loop {
        // Compares the wall clock, because tokio's clock may be paused.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let now = Timestamp::now();
        if now > before {
            return now;
        }
    }
}

pub async fn readers_do_not_consume_from_groups<F: BrokerFixture>(harness: Harness<F>) {
    let messages = series("a", 5);
    harness.publish(&messages).await;
    let mut subscriber = harness.subscribe("stock").await;
    assert_eq!(read_all(&mut harness.reader(StartAt::Beginning).await).await.len(), 5);
    assert_eq!(sorted(ids(&consume_many(&mut subscriber, 5).await)), sorted(ids(&messages)));
    assert_eq!(read_all(&mut harness.reader(StartAt::Beginning).await).await.len(), 5);
}
