//! Seeking a group, and reading from a timestamp.

use std::fs;
use std::time::Duration;

use landfall_core::adapter::Subscriber;
use landfall_core::{Broker, ErrorKind, Message, StartAt, Timestamp};
use landfall_log::{Log, Options};

use crate::support::*;

/// Long enough to conclude that no message arrives.
const MOMENT: Duration = Duration::from_millis(100);

/// Segments small enough that the log has several.
fn options() -> Options {
    Options { segment_bytes: 1024, preallocate_bytes: 256, ..one_partition() }
}

/// A log with ten messages of one key, and a timestamp between the fifth and the sixth.
async fn ten_messages(folder: &std::path::Path) -> (Log, Vec<Message>, Timestamp) {
    let log = Log::open(folder, options()).unwrap();
    let mut messages = publish_each(&log, 0..5).await;
    // The log's clock has a resolution of milliseconds: wait for one that belongs to neither half.
    let last = Timestamp::now();
    landfall_testkit::eventually(SOON, "the clock advances", async || Timestamp::now() > last).await;
    let between = Timestamp::now();
    messages.extend(publish_each(&log, 5..10).await);
    assert!(segments(folder, 0).len() > 1);
    (log, messages, between)
}

/// Every kind of seek target, and the offset it means among ten messages.
fn targets(between: Timestamp) -> [(StartAt, u64); 8] {
    let hour = 3_600_000;
    [
        (StartAt::End, 10),
        (StartAt::Beginning, 0),
        (StartAt::Offset(7), 7),
        (StartAt::Time(between), 5),
        (StartAt::Time(Timestamp::from_millis(between.as_millis() + hour)), 10),
        (StartAt::Time(Timestamp::from_millis(between.as_millis() - hour)), 0),
        // Offsets beyond the end mean the end.
        (StartAt::Offset(11), 10),
        (StartAt::Offset(u64::MAX), 10),
    ]
}

/// Asserts that the next delivery is at `offset`, or that there is none at the end.
async fn assert_resumes_at(subscriber: &mut Box<dyn Subscriber>, offset: u64, target: StartAt) {
    if offset == 10 {
        assert!(tokio::time::timeout(MOMENT, subscriber.next()).await.is_err(), "{target:?}");
    } else {
        assert_eq!(next(subscriber).await.position.offset, offset, "{target:?}");
    }
}

#[tokio::test]
async fn seek_without_members_survives_a_restart() {
    let folder = quick_folder();
    let (mut log, _, between) = ten_messages(folder.path()).await;
    let read_only = Log::open_read_only(folder.path()).unwrap();
    for (target, offset) in targets(between) {
        log.seek(&topic(), &group(), target).await.unwrap();
        let saved = read_only.groups(&topic()).await.unwrap();
        assert_eq!(saved[0].partitions[0].finished, offset, "{target:?} is on disk when seek returns");
        let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
        assert_resumes_at(&mut subscriber, offset, target).await;
        drop(subscriber);

        // As after a crash: nothing is closed or acknowledged.
        drop(log);
        log = Log::open(folder.path(), options()).unwrap();
        assert_eq!(log.groups(&topic()).unwrap()[0].lag, 10 - offset);
        let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
        assert_resumes_at(&mut subscriber, offset, target).await;
    }
}

#[tokio::test]
async fn seek_moves_members_and_fences_messages_in_flight() {
    let folder = quick_folder();
    let (log, _, between) = ten_messages(folder.path()).await;
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    for (target, offset) in targets(between) {
        log.seek(&topic(), &group(), StartAt::Offset(2)).await.unwrap();
        let (first, second, third) =
            (next(&mut subscriber).await, next(&mut subscriber).await, next(&mut subscriber).await);
        assert_eq!((first.position.offset, third.position.offset), (2, 4));
        second.nack(Duration::ZERO).await.unwrap();
        log.seek(&topic(), &group(), target).await.unwrap();
        assert_eq!(first.ack().await.unwrap_err().kind(), ErrorKind::Conflict, "{target:?}");
        assert_eq!(log.groups(&topic()).unwrap()[0].partitions[0].finished, offset, "{target:?}");
        drop(third);
        assert_resumes_at(&mut subscriber, offset, target).await;
    }
    // After a seek to the end, new messages are delivered.
    log.seek(&topic(), &group(), StartAt::End).await.unwrap();
    publish_each(&log, 10..11).await;
    assert_eq!(next(&mut subscriber).await.position.offset, 10);
}

#[tokio::test]
async fn seek_wakes_a_member_waiting_at_the_end() {
    let folder = quick_folder();
    let (log, messages, _) = ten_messages(folder.path()).await;
    log.seek(&topic(), &group(), StartAt::End).await.unwrap();
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    let mut waiting = tokio::spawn(async move { next(&mut subscriber).await.message.unwrap() });
    assert!(tokio::time::timeout(MOMENT, &mut waiting).await.is_err(), "no message is available yet");
    log.seek(&topic(), &group(), StartAt::Offset(9)).await.unwrap();
    assert_eq!(waiting.await.unwrap(), messages[9]);
}

#[tokio::test]
async fn seek_that_cannot_be_saved_is_an_error_and_can_be_repeated() {
    let folder = quick_folder();
    let (log, _, _) = ten_messages(folder.path()).await;
    // A file in place of the group's folder makes the save fail.
    let obstacle = folder.path().join("groups/stock");
    fs::write(&obstacle, "").unwrap();
    let error = log.seek(&topic(), &group(), StartAt::Offset(3)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    fs::remove_file(&obstacle).unwrap();
    log.seek(&topic(), &group(), StartAt::Offset(3)).await.unwrap();
    let read_only = Log::open_read_only(folder.path()).unwrap();
    assert_eq!(read_only.groups(&topic()).await.unwrap()[0].partitions[0].finished, 3);
}

#[tokio::test]
async fn seek_requires_a_topic_and_an_open_log() {
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
async fn reader_from_a_timestamp_agrees_inside_and_outside_the_process() {
    let folder = quick_folder();
    let (log, messages, between) = ten_messages(folder.path()).await;
    let read_only = Log::open_read_only(folder.path()).unwrap();
    for (target, offset) in targets(between).into_iter().filter(|(_, offset)| *offset < 10) {
        for mut reader in [log.read(&topic(), target).await.unwrap(), read_only.read(&topic(), target).await.unwrap()] {
            assert_eq!(
                crate::support::messages(reader.read(100).await.unwrap()),
                messages[offset as usize..],
                "{target:?}"
            );
        }
    }
}
