//! Deduplication across partitions, settings and deletion of a topic.

use std::fs;

use landfall_core::{Broker, Key, Message, TopicName};
use landfall_log::{Log, TopicSettings};

use super::scene::*;
use crate::support::*;

#[tokio::test]
async fn duplicates_are_found_after_a_topic_grew_and_keys_moved() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), small_segments()).unwrap();
    let sent = batch_of(100);
    let positions = publish_one_by_one(&log, &sent).await;
    log.grow_topic(&topic(), 7).await.unwrap();
    let moved = sent.iter().zip(&positions).filter(|(message, at)| {
        let key: &Key = message.key.as_ref().unwrap();
        key.partition(7) != at.partition
    });
    assert!(moved.count() > 20, "the test needs keys that move to another partition");
    assert_eq!(publish(&log, &sent).await, positions);
    log.close().await.unwrap();
    let log = Log::open(folder.path(), small_segments()).unwrap();
    assert_eq!(publish_one_by_one(&log, &sent).await, positions);
    assert_stored_once(&log, &sent, &positions).await;
}

#[tokio::test]
async fn keyless_duplicates_are_found_in_any_partition() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), small_segments()).unwrap();
    let sent: Vec<_> = (0..50).map(|n| Message::new(topic(), format!("{n}"))).collect();
    let positions = publish_one_by_one(&log, &sent).await;
    // An odd number of batches, so that round-robin does not pick the same partitions again.
    for _ in 0..3 {
        assert_eq!(publish(&log, &sent).await, positions);
    }
    assert_eq!(publish_one_by_one(&log, &sent).await, positions);
    assert_stored_once(&log, &sent, &positions).await;
}

#[tokio::test]
async fn deduplication_is_per_topic() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    let here = message("k", 1);
    let there = Message { topic: TopicName::new("elsewhere").unwrap(), ..here.clone() };
    publish(&log, &[here.clone(), there.clone()]).await;
    publish(&log, &[there, here]).await;
    let topics = log.topics().await.unwrap();
    assert_eq!(topics.iter().map(|topic| topic.messages).collect::<Vec<_>>(), [1, 1]);
}

#[tokio::test]
async fn deleting_a_topic_forgets_its_ids() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), small_segments()).unwrap();
    let sent = batch_of(60);
    publish_one_by_one(&log, &sent).await;
    assert!(log.delete_topic(&topic()).await.unwrap());
    let positions = publish_one_by_one(&log, &sent).await;
    assert_stored_once(&log, &sent, &positions).await;
}

#[tokio::test]
async fn without_deduplication_every_duplicate_is_stored() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    log.create_topic(&topic(), None, without_deduplication()).await.unwrap();
    let one = message("k", 1);
    let positions = publish(&log, &[one.clone(), one.clone()]).await;
    let again = publish(&log, std::slice::from_ref(&one)).await;
    assert_eq!([positions, again].concat().iter().map(|at| at.offset).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(read_all(&log).await.len(), 3);
}

#[tokio::test]
async fn enabling_deduplication_covers_existing_messages() {
    let folder = quick_folder();
    let mut log = Log::open(folder.path(), small_segments()).unwrap();
    log.create_topic(&topic(), None, without_deduplication()).await.unwrap();
    let (mut sent, mut positions) = (Vec::new(), Vec::new());
    for round in 0..4 {
        // With and without deduplication, and across restarts, which load some of the ids in another way.
        let settings = if round % 2 == 0 { without_deduplication() } else { TopicSettings::default() };
        log.configure_topic(&topic(), settings).await.unwrap();
        let more = batch_of(61);
        positions.extend(publish_one_by_one(&log, &more).await);
        sent.extend(more);
        log.configure_topic(&topic(), TopicSettings::default()).await.unwrap();
        assert_eq!(publish(&log, &sent).await, positions, "round {round}");
        if round == 1 {
            log.close().await.unwrap();
            log = Log::open(folder.path(), small_segments()).unwrap();
            assert_eq!(publish(&log, &sent).await, positions, "after the restart");
        }
    }
    assert_stored_once(&log, &sent, &positions).await;
}

#[tokio::test]
async fn index_is_identical_with_and_without_deduplication() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), small_segments()).unwrap();
    log.create_topic(&topic(), None, without_deduplication()).await.unwrap();
    publish_one_by_one(&log, &batch_of(80)).await;
    log.close().await.unwrap();
    let indexes = index_files(folder.path());
    let good: Vec<_> = indexes.iter().map(|path| fs::read(path).unwrap()).collect();
    indexes.iter().for_each(|path| fs::remove_file(path).unwrap());
    drop(Log::open(folder.path(), small_segments()).unwrap());
    assert_eq!(indexes.iter().map(|path| fs::read(path).unwrap()).collect::<Vec<_>>(), good);
}
