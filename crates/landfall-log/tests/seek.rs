//! Sending a group elsewhere, and reading from a time on.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::time::Duration;

use landfall_core::{Broker, ErrorKind, Message, StartAt, Subscriber, Timestamp};
use landfall_log::{Log, Options};
use support::*;

/// Long enough to see that nothing comes.
const MOMENT: Duration = Duration::from_millis(100);

/// Segments so small that there are several.
fn options() -> Options {
    Options { segment_bytes: 1024, preallocate_bytes: 256, ..one_partition() }
}

/// A log with messages 0 to 10 of one key, and a time after the first five and before the others.
async fn ten_messages(folder: &std::path::Path) -> (Log, Vec<Message>, Timestamp) {
    let log = Log::open(folder, options()).unwrap();
    let mut messages = publish_each(&log, 0..5).await;
    // The log's clock counts milliseconds: the next one belongs to neither half.
    let last = Timestamp::now();
    landfall_testkit::eventually(SOON, "the clock goes on", async || Timestamp::now() > last).await;
    let between = Timestamp::now();
    messages.extend(publish_each(&log, 5..10).await);
    assert!(segments(folder, 0).len() > 1);
    (log, messages, between)
}

/// Every way to say where to go, and the offset that it means among ten messages.
fn ways(between: Timestamp) -> [(StartAt, u64); 8] {
    let hour = 3_600_000;
    [
        (StartAt::End, 10),
        (StartAt::Beginning, 0),
        (StartAt::Offset(7), 7),
        (StartAt::Time(between), 5),
        (StartAt::Time(Timestamp::from_millis(between.as_millis() + hour)), 10),
        (StartAt::Time(Timestamp::from_millis(between.as_millis() - hour)), 0),
        // Beyond the end is the end: a group cannot have finished what is not there.
        (StartAt::Offset(11), 10),
        (StartAt::Offset(u64::MAX), 10),
    ]
}

/// The next message must stand at `offset`; at the end there is none.
async fn goes_on_at(subscriber: &mut Box<dyn Subscriber>, offset: u64, way: StartAt) {
    if offset == 10 {
        assert!(tokio::time::timeout(MOMENT, subscriber.next()).await.is_err(), "{way:?}");
    } else {
        assert_eq!(next(subscriber).await.position.offset, offset, "{way:?}");
    }
}

#[tokio::test]
async fn a_group_without_members_goes_where_it_is_sent_over_a_restart_too() {
    let folder = quick_folder();
    let (mut log, _, between) = ten_messages(folder.path()).await;
    let beside = Log::open_read_only(folder.path()).unwrap();
    for (way, offset) in ways(between) {
        log.seek(&topic(), &group(), way).await.unwrap();
        let saved = beside.groups(&topic()).await.unwrap();
        assert_eq!(saved[0].partitions[0].finished, offset, "{way:?} is on disk when seek returns");
        let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
        goes_on_at(&mut subscriber, offset, way).await;
        drop(subscriber);

        // As it would be after a crash: nobody closes anything, and nothing was acknowledged.
        drop(log);
        log = Log::open(folder.path(), options()).unwrap();
        assert_eq!(log.groups(&topic()).unwrap()[0].lag, 10 - offset);
        let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
        goes_on_at(&mut subscriber, offset, way).await;
    }
}

#[tokio::test]
async fn members_go_on_from_the_new_place_and_what_was_in_flight_counts_nothing() {
    let folder = quick_folder();
    let (log, _, between) = ten_messages(folder.path()).await;
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    for (way, offset) in ways(between) {
        log.seek(&topic(), &group(), StartAt::Offset(2)).await.unwrap();
        let (first, second, third) =
            (next(&mut subscriber).await, next(&mut subscriber).await, next(&mut subscriber).await);
        assert_eq!((first.position.offset, third.position.offset), (2, 4));
        second.nack(Duration::ZERO).await.unwrap();
        log.seek(&topic(), &group(), way).await.unwrap();
        assert_eq!(first.ack().await.unwrap_err().kind(), ErrorKind::Conflict, "{way:?}");
        assert_eq!(log.groups(&topic()).unwrap()[0].partitions[0].finished, offset, "{way:?}");
        drop(third);
        goes_on_at(&mut subscriber, offset, way).await;
    }
    // What comes after the end comes.
    log.seek(&topic(), &group(), StartAt::End).await.unwrap();
    publish_each(&log, 10..11).await;
    assert_eq!(next(&mut subscriber).await.position.offset, 10);
}

#[tokio::test]
async fn a_member_that_waits_at_the_end_is_woken() {
    let folder = quick_folder();
    let (log, messages, _) = ten_messages(folder.path()).await;
    log.seek(&topic(), &group(), StartAt::End).await.unwrap();
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    let mut waits = tokio::spawn(async move { next(&mut subscriber).await.message.unwrap() });
    assert!(tokio::time::timeout(MOMENT, &mut waits).await.is_err(), "there is nothing for it yet");
    log.seek(&topic(), &group(), StartAt::Offset(9)).await.unwrap();
    assert_eq!(waits.await.unwrap(), messages[9]);
}

#[tokio::test]
async fn a_seek_that_cannot_be_saved_is_an_error_and_can_be_repeated() {
    let folder = quick_folder();
    let (log, _, _) = ten_messages(folder.path()).await;
    // Where the group's folder belongs there is a file.
    let in_the_way = folder.path().join("groups/stock");
    fs::write(&in_the_way, "").unwrap();
    let error = log.seek(&topic(), &group(), StartAt::Offset(3)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    fs::remove_file(&in_the_way).unwrap();
    log.seek(&topic(), &group(), StartAt::Offset(3)).await.unwrap();
    let beside = Log::open_read_only(folder.path()).unwrap();
    assert_eq!(beside.groups(&topic()).await.unwrap()[0].partitions[0].finished, 3);
}

#[tokio::test]
async fn there_must_be_a_topic_and_an_open_log() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    let error = log.seek(&topic(), &group(), StartAt::End).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    publish_each(&log, 0..1).await;
    log.close().await.unwrap();
    let error = log.seek(&topic(), &group(), StartAt::End).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_reader_from_a_time_sees_the_same_inside_and_beside_the_process() {
    let folder = quick_folder();
    let (log, messages, between) = ten_messages(folder.path()).await;
    let beside = Log::open_read_only(folder.path()).unwrap();
    for (way, offset) in ways(between).into_iter().filter(|(_, offset)| *offset < 10) {
        for mut reader in [log.read(&topic(), way).await.unwrap(), beside.read(&topic(), way).await.unwrap()] {
            assert_eq!(support::messages(reader.read(100).await.unwrap()), messages[offset as usize..], "{way:?}");
        }
    }
}
