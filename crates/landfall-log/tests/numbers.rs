//! Idempotent producers, and what happens to a topic meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use landfall_core::{ErrorCode, Key, Message, Outcome, Position, ProducerName};
use landfall_log::{Gaps, Log, Options, TopicSettings};
use support::*;

fn options() -> Options {
    Options { segment_bytes: 4096, gaps: Gaps::Refuse, ..one_partition() }
}

fn relay() -> ProducerName {
    ProducerName::new("relay").unwrap()
}

fn accepted(offset: u64) -> Outcome {
    Outcome::Accepted(Position { partition: 0, offset })
}

#[tokio::test]
async fn a_producer_goes_on_although_retention_has_removed_all_it_wrote() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), options()).unwrap();
    let keep = TopicSettings { retention_bytes: Some(1), ..TopicSettings::default() };
    log.create_topic(&topic(), Some(1), keep).await.unwrap();
    let producer = log.producer(&relay()).await.unwrap();
    let sent = [Message::new(topic(), "one"), Message::new(topic(), "two")];
    assert_eq!(producer.publish(&topic(), 0, 0, &sent).await, [accepted(0), accepted(1)]);
    publish_each(&log, 0..200).await;
    let removed = log.maintain().await.unwrap().removed_messages;
    assert!(removed > 2);
    drop(producer);
    log.close().await.unwrap();

    for _ in 0..2 {
        let log = Log::open(folder.path(), options()).unwrap();
        let producer = log.producer(&relay()).await.unwrap();
        assert_eq!(producer.next_sequence(&topic(), 0).await.unwrap(), 2);
        // All that is left to say is that it had been stored.
        assert_eq!(producer.publish(&topic(), 0, 0, &sent).await, [accepted(removed), accepted(removed)]);
        log.close().await.unwrap();
    }
}

#[tokio::test]
async fn what_was_sent_before_a_topic_grew_can_be_repeated_and_nothing_new_goes_where_its_key_is_not() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), options()).unwrap();
    log.create_topic(&topic(), Some(1), TopicSettings::default()).await.unwrap();
    let producer = log.producer(&relay()).await.unwrap();
    let keys = (0..).map(|n| Key::new(format!("k{n}")).unwrap());
    let moved = keys.into_iter().find(|key| key.partition(2) == 1).unwrap();
    let sent = Message::new(topic(), "one").with_key(moved);
    assert_eq!(producer.publish(&topic(), 0, 0, std::slice::from_ref(&sent)).await, [accepted(0)]);
    log.grow_topic(&topic(), 2).await.unwrap();

    assert_eq!(producer.publish(&topic(), 0, 0, std::slice::from_ref(&sent)).await, [accepted(0)]);
    let with_more = [sent.clone(), Message::new(topic(), "two")];
    assert_eq!(producer.publish(&topic(), 0, 0, &with_more).await, [accepted(0), accepted(1)]);
    let outcomes = producer.publish(&topic(), 0, 2, &[sent]).await;
    assert!(matches!(&outcomes[..], [Outcome::Refused(refusal)] if refusal.code == ErrorCode::VALIDATION));
}
