//! Retention and compaction: what goes, what stays, and who notices.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use landfall_core::{Broker, Key, Message, Outcome, Position, StartAt, Timestamp};
use landfall_log::{Log, Options, TopicSettings};
use support::*;

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
async fn what_is_beyond_the_size_goes_and_offsets_go_on() {
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
    assert_eq!(log.maintain().await.unwrap().removed_segments, 0, "there is nothing more to do");

    messages.extend(publish_each(&log, 200..210).await);
    log.close().await.unwrap();
    let log = Log::open(folder.path(), options()).unwrap();
    assert!(stored(&log).await.values().eq(&messages[start as usize..]));
    // What is gone is gone for good: its ids were forgotten with it, and those of the others were not.
    let known = publish(&log, &messages[start as usize..][..3]).await;
    assert_eq!(known.iter().map(|position| position.offset).collect::<Vec<_>>(), [start, start + 1, start + 2]);
    let anew = publish(&log, &messages[..3]).await;
    assert_eq!(anew[0], Position { partition: 0, offset: 210 });
}

#[tokio::test]
async fn what_is_too_old_goes_even_from_the_last_segment() {
    let folder = quick_folder();
    let age = Duration::from_millis(300);
    let log = open(folder.path(), TopicSettings { retention_time: Some(age), ..TopicSettings::default() }).await;
    publish_each(&log, 0..49).await;
    // Not later than the moment at which the last one is taken.
    let last = Timestamp::now();
    publish_each(&log, 49..50).await;
    landfall_testkit::eventually(SOON, "all of it is old enough", async || {
        log.maintain().await.unwrap();
        stored(&log).await.is_empty()
    })
    .await;
    assert!(last.elapsed_since(Timestamp::now()) >= age, "nothing goes before its time");
    let positions = publish(&log, &[message("k", 50)]).await;
    assert_eq!(positions[0].offset, 50, "offsets go on");
    log.close().await.unwrap();
    let log = Log::open(folder.path(), options()).unwrap();
    assert_eq!(stored(&log).await.len(), 1);
}

#[tokio::test]
async fn what_a_group_has_not_finished_stays_unless_somebody_says_otherwise() {
    let folder = quick_folder();
    let log = open(folder.path(), by_bytes(1)).await;
    publish_each(&log, 0..100).await;
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    log.maintain().await.unwrap();
    assert_eq!(stored(&log).await.len(), 100, "it has finished nothing");
    for _ in 0..60 {
        next(&mut subscriber).await.ack().await.unwrap();
    }
    subscriber.close().await.unwrap();
    log.close().await.unwrap();

    // After a restart the group is remembered, although nobody is there.
    let log = Log::open(folder.path(), options()).unwrap();
    log.maintain().await.unwrap();
    let left = stored(&log).await;
    let first = *left.keys().next().unwrap();
    assert!(first > 0 && first <= 60, "up to offset 60 everything may go, not more: {first}");

    let settings = TopicSettings { may_drop_unread: true, ..by_bytes(1) };
    log.configure_topic(&topic(), settings).await.unwrap();
    log.maintain().await.unwrap();
    let left = stored(&log).await;
    let first = *left.keys().next().unwrap();
    assert!(first > 60);
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    assert_eq!(next(&mut subscriber).await.position.offset, first, "the group goes on with what is there");
}

#[tokio::test]
async fn a_group_that_has_joined_and_finished_nothing_is_remembered() {
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
async fn readers_in_the_middle_go_on_with_what_is_left() {
    let folder = quick_folder();
    let log = open(folder.path(), by_bytes(6000)).await;
    publish_each(&log, 0..100).await;
    let mut inside = log.read(&topic(), StartAt::Beginning).await.unwrap();
    let beside = Log::open_read_only(folder.path()).unwrap();
    let mut outside = beside.read(&topic(), StartAt::Beginning).await.unwrap();
    inside.read(1).await.unwrap();
    outside.read(1).await.unwrap();
    publish_each(&log, 100..300).await;
    assert!(log.maintain().await.unwrap().removed_messages > 100);
    for reader in [&mut inside, &mut outside] {
        let (read, outcome) = drain(&mut **reader).await;
        outcome.unwrap();
        let offsets: Vec<_> = read.iter().map(|stored| stored.position.offset).collect();
        assert!(offsets.is_sorted(), "in order");
        assert_eq!(offsets.last(), Some(&299));
    }
    let description = beside.describe(&topic()).await.unwrap();
    assert_eq!(description, log.describe(&topic()).unwrap());
}

fn of_key(key: &str, n: i64) -> Message {
    Message::new(topic(), format!("{key} is now {n}")).with_key(Key::new(key).unwrap()).with_sequence(n)
}

#[tokio::test]
async fn compaction_keeps_the_newest_of_each_key_at_its_offset_and_every_id() {
    let folder = quick_folder();
    let log = open(folder.path(), TopicSettings { compact: true, ..TopicSettings::default() }).await;
    let mut all = Vec::new();
    for n in 0..60 {
        for key in ["a", "b", "c"] {
            all.push(of_key(key, n));
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
    assert_eq!(log.maintain().await.unwrap().compacted_segments, 0, "there is nothing more to do");

    // Whoever consumes gets what is left, and the group arrives at the end.
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
    // A resend of what was removed is known, at its old place.
    for (offset, message) in (0_u64..).zip(&all) {
        let outcomes = landfall_core::Publisher::publish(&log, std::slice::from_ref(message)).await;
        assert_eq!(outcomes, [Outcome::Accepted(Position { partition: 0, offset })]);
    }
    check(&log).await;
}

#[tokio::test]
async fn compaction_waits_for_the_groups() {
    let folder = quick_folder();
    let log = open(folder.path(), TopicSettings { compact: true, ..TopicSettings::default() }).await;
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    let messages: Vec<_> = (0..150).map(|n| of_key("a", n)).collect();
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
async fn a_reader_inside_a_segment_that_is_compacted_goes_on() {
    let folder = quick_folder();
    let log = open(folder.path(), TopicSettings { compact: true, ..TopicSettings::default() }).await;
    let messages: Vec<_> = (0..150).map(|n| of_key("a", n)).collect();
    for batch in messages.chunks(3) {
        publish(&log, batch).await;
    }
    let beside = Log::open_read_only(folder.path()).unwrap();
    for from in [0, 7, 40, 149] {
        let mut inside = log.read(&topic(), StartAt::Offset(from)).await.unwrap();
        let mut outside = beside.read(&topic(), StartAt::Offset(from)).await.unwrap();
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

/// An open log looks after itself.
#[tokio::test]
async fn maintenance_comes_by_itself() {
    let folder = quick_folder();
    let options = Options { maintenance: Duration::from_millis(20), topic: by_bytes(1), ..options() };
    let log = Log::open(folder.path(), options).unwrap();
    publish_each(&log, 0..100).await;
    landfall_testkit::eventually(SOON, "old segments go", async || segments(folder.path(), 0).len() == 1).await;
    // Closing waits for the round that is under way, and the folder is free.
    log.close().await.unwrap();
    let log = Log::open(folder.path(), options).unwrap();
    drop(log);
    Log::open(folder.path(), options).unwrap();
}

#[tokio::test]
async fn the_folder_is_free_after_the_last_drop_whatever_the_keeper_does() {
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
