//! Retention and compaction: what is removed, what stays, and what groups and readers see.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use landfall_core::{Broker, Key, Message, Outcome, Position, StartAt, Timestamp};
use landfall_log::{Log, Options, TopicSettings};

use crate::support::*;

fn options() -> Options {
    Options { segment_bytes: 4096, preallocate_bytes: 1024, ..one_partition() }
}

async fn open(folder: &Path, settings: TopicSettings) -> Log {
    let log = Log::open(folder, options()).unwrap();
    log.create_topic(&topic(), Some(1), settings).await.unwrap();
    log
}

fn by_bytes(bytes: u64) -> TopicSettings {
    TopicSettings { retention_bytes: Some(bytes), ..TopicSettings::default() }
}

/// Every message of the topic with its offset.
async fn stored(log: &Log) -> BTreeMap<u64, Message> {
    let mut reader = log.read(&topic(), StartAt::Beginning).await.unwrap();
    let (stored, outcome) = drain(&mut *reader).await;
    outcome.unwrap();
    stored.into_iter().map(|stored| (stored.position.offset, stored.message.unwrap())).collect()
}

#[tokio::test]
async fn size_retention_removes_segments_and_keeps_offsets() {
    let folder = quick_folder();
    let log = open(folder.path(), by_bytes(10_000)).await;
    let mut messages = publish_each(&log, 0..200).await;
    assert!(segments(folder.path(), 0).len() > 5);
    let done = log.maintain().await.unwrap();
    let start = done.removed_messages;
    assert!(start > 0 && done.removed_segments > 0 && done.removed_bytes > 0, "{done:?}");

    let left = stored(&log).await;
    assert_eq!(left.keys().copied().collect::<Vec<_>>(), (start..200).collect::<Vec<_>>());
    assert!(left.values().eq(&messages[start as usize..]));
    let description = log.describe(&topic()).unwrap();
    assert_eq!((description.partitions[0].start, description.partitions[0].end), (start, 200));
    assert_eq!(description.messages, 200 - start);
    assert!(description.bytes <= 10_000 + 4096, "{} bytes are left", description.bytes);
    assert_eq!(segments(folder.path(), 0).len(), description.partitions[0].segments);
    assert_eq!(log.maintain().await.unwrap().removed_segments, 0, "a second round finds nothing to remove");

    messages.extend(publish_each(&log, 200..210).await);
    log.close().await.unwrap();
    let log = Log::open(folder.path(), options()).unwrap();
    assert!(stored(&log).await.values().eq(&messages[start as usize..]));
    // Retention forgets the ids of removed messages, and only those.
    let known = publish(&log, &messages[start as usize..][..3]).await;
    assert_eq!(known.iter().map(|position| position.offset).collect::<Vec<_>>(), [start, start + 1, start + 2]);
    let republished = publish(&log, &messages[..3]).await;
    assert_eq!(republished[0], Position { partition: 0, offset: 210 });
}

#[tokio::test]
async fn time_retention_covers_the_last_segment() {
    let folder = quick_folder();
    let age = Duration::from_millis(300);
    let log = open(folder.path(), TopicSettings { retention_time: Some(age), ..TopicSettings::default() }).await;
    publish_each(&log, 0..49).await;
    // Not later than the log's timestamp of the last message.
    let last = Timestamp::now();
    publish_each(&log, 49..50).await;
    landfall_testkit::eventually(SOON, "all messages exceed the retention", async || {
        log.maintain().await.unwrap();
        stored(&log).await.is_empty()
    })
    .await;
    assert!(last.elapsed_since(Timestamp::now()) >= age, "no message is removed early");
    let positions = publish(&log, &[message("k", 50)]).await;
    assert_eq!(positions[0].offset, 50, "offsets continue");
    log.close().await.unwrap();
    let log = Log::open(folder.path(), options()).unwrap();
    assert_eq!(stored(&log).await.len(), 1);
}

#[tokio::test]
async fn retention_keeps_unfinished_messages_unless_allowed_to_drop() {
    let folder = quick_folder();
    let log = open(folder.path(), by_bytes(1)).await;
    publish_each(&log, 0..100).await;
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    log.maintain().await.unwrap();
    assert_eq!(stored(&log).await.len(), 100, "the group has finished nothing");
    for _ in 0..60 {
        next(&mut subscriber).await.ack().await.unwrap();
    }
    subscriber.close().await.unwrap();
    log.close().await.unwrap();

    // The restarted log remembers the group, although it has no member.
    let log = Log::open(folder.path(), options()).unwrap();
    log.maintain().await.unwrap();
    let left = stored(&log).await;
    let first = *left.keys().next().unwrap();
    assert!(first > 0 && first <= 60, "only messages up to offset 60 may be removed: {first}");

    let settings = TopicSettings { may_drop_unread: true, ..by_bytes(1) };
    log.configure_topic(&topic(), settings).await.unwrap();
    log.maintain().await.unwrap();
    let left = stored(&log).await;
    let first = *left.keys().next().unwrap();
    assert!(first > 60);
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    assert_eq!(next(&mut subscriber).await.position.offset, first, "the group continues with the first one left");
}

#[tokio::test]
async fn group_that_only_joined_holds_back_retention() {
    let folder = quick_folder();
    let log = open(folder.path(), by_bytes(1)).await;
    let subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    subscriber.close().await.unwrap();
    publish_each(&log, 0..50).await;
    log.close().await.unwrap();
    let log = Log::open(folder.path(), options()).unwrap();
    log.maintain().await.unwrap();
    assert_eq!(stored(&log).await.len(), 50);
}

#[tokio::test]
async fn readers_continue_after_retention_removed_their_position() {
    let folder = quick_folder();
    let log = open(folder.path(), by_bytes(6000)).await;
    publish_each(&log, 0..100).await;
    let mut inside = log.read(&topic(), StartAt::Beginning).await.unwrap();
    let read_only = Log::open_read_only(folder.path()).unwrap();
    let mut outside = read_only.read(&topic(), StartAt::Beginning).await.unwrap();
    inside.read(1).await.unwrap();
    outside.read(1).await.unwrap();
    publish_each(&log, 100..300).await;
    assert!(log.maintain().await.unwrap().removed_messages > 100);
    for reader in [&mut inside, &mut outside] {
        let (read, outcome) = drain(&mut **reader).await;
        outcome.unwrap();
        let offsets: Vec<_> = read.iter().map(|stored| stored.position.offset).collect();
        assert!(offsets.is_sorted(), "offsets are in order");
        assert_eq!(offsets.last(), Some(&299));
    }
    let description = read_only.describe(&topic()).await.unwrap();
    assert_eq!(description, log.describe(&topic()).unwrap());
}

fn update(key: &str, n: i64) -> Message {
    Message::new(topic(), format!("{key} is now {n}")).with_key(Key::new(key).unwrap()).with_sequence(n)
}

#[tokio::test]
async fn compaction_keeps_newest_per_key_its_offset_and_all_ids() {
    let folder = quick_folder();
    let log = open(folder.path(), TopicSettings { compact: true, ..TopicSettings::default() }).await;
    let mut all = Vec::new();
    for n in 0..60 {
        for key in ["a", "b", "c"] {
            all.push(update(key, n));
        }
        if n % 20 == 0 {
            all.push(Message::new(topic(), "no key"));
        }
    }
    for batch in all.chunks(4) {
        publish(&log, batch).await;
    }
    let before = log.describe(&topic()).unwrap();
    let last = *segments_starts(folder.path()).last().unwrap();
    let done = log.maintain().await.unwrap();
    assert!(done.compacted_segments > 2 && done.compacted_messages > 100, "{done:?}");
    let after = log.describe(&topic()).unwrap();
    assert!(after.bytes < before.bytes * 3 / 4, "{} of {} bytes are left", after.bytes, before.bytes);

    let check = async |log: &Log| {
        let left = stored(log).await;
        for (offset, message) in &left {
            assert_eq!(*message, all[*offset as usize]);
        }
        for (offset, message) in (0_u64..).zip(&all) {
            let is_newest = message.key.is_none() || offset >= all.len() as u64 - 3;
            assert!(left.contains_key(&offset) || !is_newest, "offset {offset} is the newest of its key");
            let may_stay = is_newest || offset >= last;
            assert!(may_stay || !left.contains_key(&offset), "offset {offset} should be gone");
        }
    };
    check(&log).await;
    assert_eq!(log.maintain().await.unwrap().compacted_segments, 0, "a second round finds nothing to compact");

    // A consumer receives the remaining messages, and its group reaches the end.
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    for offset in stored(&log).await.into_keys() {
        let delivery = next(&mut subscriber).await;
        assert_eq!(delivery.position.offset, offset);
        delivery.ack().await.unwrap();
    }
    subscriber.close().await.unwrap();
    assert_eq!(log.groups(&topic()).unwrap()[0].lag, 0);
    log.close().await.unwrap();

    let log = Log::open(folder.path(), options()).unwrap();
    check(&log).await;
    let reports = Log::open_read_only(folder.path()).unwrap().verify(None, |_| ()).await.unwrap();
    assert!(reports[0].problems.is_empty(), "{:?}", reports[0].problems);
    assert_eq!(reports[0].removed, done.compacted_messages);
    // Duplicates of compacted messages get their old positions.
    for (offset, message) in (0_u64..).zip(&all) {
        let outcomes = landfall_core::Publisher::publish(&log, std::slice::from_ref(message)).await;
        assert_eq!(outcomes, [Outcome::Accepted(Position { partition: 0, offset })]);
    }
    check(&log).await;
}

#[tokio::test]
async fn compaction_waits_for_groups() {
    let folder = quick_folder();
    let log = open(folder.path(), TopicSettings { compact: true, ..TopicSettings::default() }).await;
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    let messages: Vec<_> = (0..150).map(|n| update("a", n)).collect();
    for batch in messages.chunks(3) {
        publish(&log, batch).await;
    }
    assert_eq!(log.maintain().await.unwrap().compacted_messages, 0);
    for expected in &messages {
        let delivery = next(&mut subscriber).await;
        assert_eq!(delivery.message.as_ref().unwrap(), expected);
        delivery.ack().await.unwrap();
    }
    assert!(log.maintain().await.unwrap().compacted_messages > 50);
}

#[tokio::test]
async fn readers_continue_in_a_compacted_segment() {
    let folder = quick_folder();
    let log = open(folder.path(), TopicSettings { compact: true, ..TopicSettings::default() }).await;
    let messages: Vec<_> = (0..150).map(|n| update("a", n)).collect();
    for batch in messages.chunks(3) {
        publish(&log, batch).await;
    }
    let read_only = Log::open_read_only(folder.path()).unwrap();
    for from in [0, 7, 40, 149] {
        let mut inside = log.read(&topic(), StartAt::Offset(from)).await.unwrap();
        let mut outside = read_only.read(&topic(), StartAt::Offset(from)).await.unwrap();
        inside.read(1).await.unwrap();
        outside.read(1).await.unwrap();
        log.maintain().await.unwrap();
        for reader in [&mut inside, &mut outside] {
            let (read, outcome) = drain(&mut **reader).await;
            outcome.unwrap();
            for stored in read {
                assert_eq!(stored.message.unwrap(), messages[stored.position.offset as usize]);
            }
        }
    }
}

/// An open log maintains itself.
#[tokio::test]
async fn maintenance_runs_periodically() {
    let folder = quick_folder();
    let options = Options { maintenance: Duration::from_millis(20), topic: by_bytes(1), ..options() };
    let log = Log::open(folder.path(), options).unwrap();
    publish_each(&log, 0..100).await;
    landfall_testkit::eventually(SOON, "old segments are removed", async || segments(folder.path(), 0).len() == 1)
        .await;
    // Closing waits for a running round and releases the lock of the folder.
    log.close().await.unwrap();
    let log = Log::open(folder.path(), options).unwrap();
    drop(log);
    Log::open(folder.path(), options).unwrap();
}

#[tokio::test]
async fn last_drop_releases_the_folder_during_maintenance() {
    let folder = quick_folder();
    let options = Options { maintenance: Duration::from_micros(100), topic: by_bytes(1), ..options() };
    for round in 0..100 {
        let log = Log::open(folder.path(), options).unwrap_or_else(|error| panic!("round {round}: {error}"));
        publish_each(&log, round..round + 1).await;
    }
}

fn segments_starts(folder: &Path) -> Vec<u64> {
    let start = |path: std::path::PathBuf| path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    segments(folder, 0).into_iter().map(start).collect()
}
