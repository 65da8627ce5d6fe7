//! A message whose id the topic holds is answered with its first place and not stored again, whatever has happened
//! since.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "support/failing_disk.rs"]
mod failing_disk;
mod support;

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use failing_disk::FailingDisk;
use landfall_core::{
    Broker, ErrorCode, Key, Message, MessageId, Outcome, Position, Publisher, StartAt, SystemHeader, TopicName,
};
use landfall_log::{Log, Options, TopicSettings};
use support::*;

/// Segments so small that a few messages finish one.
fn small_segments() -> Options {
    Options { segment_bytes: 2048, preallocate_bytes: 512, partitions: 2, ..Options::default() }
}

fn without_deduplication() -> TopicSettings {
    TopicSettings { deduplicate: false, ..TopicSettings::default() }
}

/// Messages of many keys.
fn batch_of(count: i64) -> Vec<Message> {
    (0..count).map(|n| message(&format!("key {n}"), n)).collect()
}

async fn publish_alone(log: &Log, messages: &[Message]) -> Vec<Position> {
    let mut positions = Vec::new();
    for message in messages {
        positions.extend(publish(log, std::slice::from_ref(message)).await);
    }
    positions
}

/// What was sent must stand at these places and nowhere else.
async fn assert_stored_once(log: &Log, sent: &[Message], positions: &[Position]) {
    let mut reader = log.read(&topic(), StartAt::Beginning).await.unwrap();
    let (stored, outcome) = drain(&mut *reader).await;
    outcome.unwrap();
    let mut found: Vec<_> = stored.into_iter().map(|stored| (stored.position, stored.message.unwrap())).collect();
    let mut expected: Vec<_> = positions.iter().copied().zip(sent.iter().cloned()).collect();
    found.sort_by_key(|(position, _)| *position);
    expected.sort_by_key(|(position, _)| *position);
    assert_eq!(found, expected);
}

fn finished_segments(folder: &Path) -> usize {
    (0..2).map(|partition| segments(folder, partition).len().saturating_sub(1)).sum()
}

fn index_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let all = (0..2).flat_map(|partition| segments(folder, partition));
    all.map(|path| path.with_extension("index")).filter(|path| path.exists()).collect()
}

#[tokio::test]
async fn a_copy_in_the_same_batch_and_in_a_later_one_gets_the_first_place() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), small_segments()).unwrap();
    let (a, b, c) = (message("k", 1), message("k", 2), message("other", 3));
    let batch = [a.clone(), b.clone(), a.clone(), c.clone(), b.clone(), a.clone()];
    let positions = publish(&log, &batch).await;
    let [at_a, at_b, at_c] = [positions[0], positions[1], positions[3]];
    assert_eq!(positions, [at_a, at_b, at_a, at_c, at_b, at_a]);
    let d = message("k", 4);
    let again = publish(&log, &[c.clone(), d.clone(), b.clone(), d.clone()]).await;
    assert_eq!((again[0], again[2], again[3]), (at_c, at_b, again[1]));
    let before = [at_a, at_b, at_c].into_iter().filter(|at| at.partition == again[1].partition).count();
    assert_eq!(again[1].offset, before as u64, "what is known leaves no gap");
    assert_stored_once(&log, &[a, b, c, d], &[at_a, at_b, at_c, again[1]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_that_are_published_at_the_same_time_get_one_place() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), small_segments()).unwrap();
    let sent = batch_of(60);
    let mut publishers = tokio::task::JoinSet::new();
    for publisher in 0..8 {
        let (log, sent) = (log.clone(), sent.clone());
        publishers.spawn(async move {
            let mut positions = Vec::new();
            for batch in sent.chunks(1 + publisher) {
                positions.extend(publish(&log, batch).await);
            }
            positions
        });
    }
    let answers = publishers.join_all().await;
    assert!(answers.iter().all(|answer| *answer == answers[0]), "everybody is told the same");
    assert_stored_once(&log, &sent, &answers[0]).await;
}

#[tokio::test]
async fn ids_are_known_after_their_segments_were_finished_and_after_a_restart() {
    let folder = quick_folder();
    let sent = batch_of(200);
    let mut log = Log::open(folder.path(), small_segments()).unwrap();
    let positions = publish_alone(&log, &sent).await;
    assert!(finished_segments(folder.path()) > 10);
    for _ in 0..3 {
        assert_eq!(publish(&log, &sent).await, positions);
        assert_eq!(publish_alone(&log, &sent[..20]).await, positions[..20]);
        log.close().await.unwrap();
        log = Log::open(folder.path(), small_segments()).unwrap();
    }
    let more = batch_of(200);
    let more_positions = publish(&log, &more).await;
    assert_eq!(publish(&log, &sent).await, positions);
    let (all, places) = ([sent, more].concat(), [positions, more_positions].concat());
    assert_stored_once(&log, &all, &places).await;
}

/// A message that was moved aside keeps its id from one try to the next, and each of its sends must be stored: also by a
/// log that has forgotten everything but what stands in its files.
#[tokio::test]
async fn each_send_of_a_message_that_was_moved_aside_is_known_by_itself() {
    let folder = quick_folder();
    let mut log = Log::open(folder.path(), small_segments()).unwrap();
    let first = batch_of(60);
    let mut sent = first.clone();
    for attempts in 1..=3 {
        sent.extend(first.iter().cloned().map(|mut message| {
            message.headers.note(SystemHeader::Attempts, attempts);
            message
        }));
    }
    let positions = publish_alone(&log, &sent).await;
    assert!(finished_segments(folder.path()) > 10);
    for removes_indexes in [false, true, false] {
        assert_eq!(publish(&log, &sent).await, positions);
        log.close().await.unwrap();
        if removes_indexes {
            index_files(folder.path()).iter().for_each(|path| fs::remove_file(path).unwrap());
        }
        log = Log::open(folder.path(), small_segments()).unwrap();
    }
    assert_stored_once(&log, &sent, &positions).await;
}

#[tokio::test]
async fn ids_are_known_after_their_index_was_deleted_damaged_or_mixed_up() {
    let folder = quick_folder();
    let sent = batch_of(120);
    let log = Log::open(folder.path(), small_segments()).unwrap();
    let positions = publish_alone(&log, &sent).await;
    log.close().await.unwrap();
    let indexes = index_files(folder.path());
    let good: Vec<_> = indexes.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(indexes.len() > 5);
    for round in 0..4 {
        for (number, path) in indexes.iter().enumerate() {
            match round {
                0 => fs::remove_file(path).unwrap(),
                1 => {
                    let mut bytes = good[number].clone();
                    let at = (number * 37 + 90) % bytes.len();
                    bytes[at] ^= 1;
                    fs::write(path, bytes).unwrap();
                }
                2 => fs::write(path, &good[number][..good[number].len() / 2]).unwrap(),
                _ => fs::write(path, &good[(number + 1) % good.len()]).unwrap(),
            }
        }
        let log = Log::open(folder.path(), small_segments()).unwrap();
        assert_eq!(publish(&log, &sent).await, positions, "round {round}");
        assert_stored_once(&log, &sent, &positions).await;
        log.close().await.unwrap();
        let made_again: Vec<_> = indexes.iter().map(|path| fs::read(path).unwrap()).collect();
        assert_eq!(made_again, good, "round {round}: an index is made of its segment and of nothing else");
    }
}

#[tokio::test]
async fn an_id_is_known_wherever_its_key_goes_after_the_topic_grew() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), small_segments()).unwrap();
    let sent = batch_of(100);
    let positions = publish_alone(&log, &sent).await;
    log.grow_topic(&topic(), 7).await.unwrap();
    let moved = sent.iter().zip(&positions).filter(|(message, at)| {
        let key: &Key = message.key.as_ref().unwrap();
        key.partition(7) != at.partition
    });
    assert!(moved.count() > 20, "the test is about keys that go elsewhere");
    assert_eq!(publish(&log, &sent).await, positions);
    log.close().await.unwrap();
    let log = Log::open(folder.path(), small_segments()).unwrap();
    assert_eq!(publish_alone(&log, &sent).await, positions);
    assert_stored_once(&log, &sent, &positions).await;
}

#[tokio::test]
async fn messages_without_a_key_are_known_in_whichever_partition_it_was_their_turn() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), small_segments()).unwrap();
    let sent: Vec<_> = (0..50).map(|n| Message::new(topic(), format!("{n}"))).collect();
    let positions = publish_alone(&log, &sent).await;
    // An odd number of batches, so that the turns do not fall on the same partitions again.
    for _ in 0..3 {
        assert_eq!(publish(&log, &sent).await, positions);
    }
    assert_eq!(publish_alone(&log, &sent).await, positions);
    assert_stored_once(&log, &sent, &positions).await;
}

#[tokio::test]
async fn topics_know_nothing_of_each_other() {
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
async fn a_topic_that_was_deleted_remembers_nothing() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), small_segments()).unwrap();
    let sent = batch_of(60);
    publish_alone(&log, &sent).await;
    assert!(log.delete_topic(&topic()).await.unwrap());
    let positions = publish_alone(&log, &sent).await;
    assert_stored_once(&log, &sent, &positions).await;
}

#[tokio::test]
async fn without_deduplication_every_copy_is_stored() {
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
async fn once_deduplication_is_turned_on_everything_that_is_there_is_known() {
    let folder = quick_folder();
    let mut log = Log::open(folder.path(), small_segments()).unwrap();
    log.create_topic(&topic(), None, without_deduplication()).await.unwrap();
    let (mut sent, mut positions) = (Vec::new(), Vec::new());
    for round in 0..4 {
        // With it, without it, and over restarts, which read some of the ids in another way.
        let settings = if round % 2 == 0 { without_deduplication() } else { TopicSettings::default() };
        log.configure_topic(&topic(), settings).await.unwrap();
        let more = batch_of(61);
        positions.extend(publish_alone(&log, &more).await);
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
async fn an_index_is_the_same_whether_ids_were_looked_at_or_not() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), small_segments()).unwrap();
    log.create_topic(&topic(), None, without_deduplication()).await.unwrap();
    publish_alone(&log, &batch_of(80)).await;
    log.close().await.unwrap();
    let indexes = index_files(folder.path());
    let good: Vec<_> = indexes.iter().map(|path| fs::read(path).unwrap()).collect();
    indexes.iter().for_each(|path| fs::remove_file(path).unwrap());
    drop(Log::open(folder.path(), small_segments()).unwrap());
    assert_eq!(indexes.iter().map(|path| fs::read(path).unwrap()).collect::<Vec<_>>(), good);
}

#[tokio::test]
async fn a_message_that_was_too_large_is_not_remembered() {
    let folder = quick_folder();
    let mut log = Log::open(folder.path(), small_segments()).unwrap();
    let large = Message::new(topic(), vec![b'x'; 4096]).with_key(Key::new("k").unwrap());
    let outcomes = log.publish(&[message("other", 1), large.clone()]).await;
    assert!(matches!(&outcomes[1], Outcome::Refused(refusal) if refusal.code == ErrorCode::TOO_LARGE));
    log.close().await.unwrap();
    log = Log::open(folder.path(), Options { segment_bytes: 64 * 1024, ..small_segments() }).unwrap();
    let position = publish(&log, std::slice::from_ref(&large)).await[0];
    let small = Message { payload: "now it is small".into(), ..message("k", 3) };
    assert_eq!(publish(&log, &[large.clone(), small]).await[0], position);
}

/// The disk is full at every change that a batch makes, one after the other.
#[tokio::test]
async fn a_message_that_found_no_room_is_not_remembered_and_is_stored_once_when_there_is() {
    for changes in 0..40 {
        let folder = quick_folder();
        let disk = Arc::new(FailingDisk::new(io::ErrorKind::StorageFull));
        let log = Log::open_on(disk.clone(), folder.path(), small_segments()).unwrap();
        let mut sent = batch_of(30);
        let mut positions = publish_alone(&log, &sent).await;
        let more = batch_of(60);
        disk.fail_after(changes);
        let outcomes = log.publish(&more).await;
        assert!(disk.has_failed(), "change {changes} is none of the batch's");
        disk.fail_after(i64::MAX);
        for outcome in &outcomes {
            match outcome {
                Outcome::Accepted(_) => {}
                Outcome::Refused(refusal) => {
                    assert!(refusal.retriable, "{refusal:?}");
                    assert_eq!(refusal.code, ErrorCode::STORAGE_FULL, "change {changes}");
                }
                // A write or a sync of the batch itself failed: the log has stopped.
                Outcome::Unknown(_) => assert!(log.health().is_err(), "change {changes}"),
            }
        }
        let log = if log.health().is_ok() {
            log
        } else {
            log.close().await.unwrap();
            drop(log);
            Log::open(folder.path(), small_segments()).unwrap()
        };
        let again = publish(&log, &more).await;
        for (outcome, position) in outcomes.iter().zip(&again) {
            if let Outcome::Accepted(first) = outcome {
                assert_eq!(first, position, "change {changes}");
            }
        }
        assert_eq!(publish(&log, &sent).await, positions, "change {changes}");
        sent.extend(more);
        positions.extend(again);
        assert_stored_once(&log, &sent, &positions).await;
        log.close().await.unwrap();
        drop(log);
        let log = Log::open(folder.path(), small_segments()).unwrap();
        assert_eq!(publish_alone(&log, &sent).await, positions, "change {changes}, after a restart");
    }
}

#[tokio::test]
async fn whoever_does_not_know_sends_again_and_it_is_there_once() {
    for changes in 0..8 {
        let folder = quick_folder();
        let disk = Arc::new(FailingDisk::new(io::ErrorKind::Other));
        let log = Log::open_on(disk.clone(), folder.path(), small_segments()).unwrap();
        let mut sent = batch_of(10);
        let mut positions = publish(&log, &sent).await;
        // Enough for several segments: in the room that is there already little could fail.
        let more = batch_of(60);
        disk.fail_after(changes);
        let outcomes = log.publish(&more).await;
        assert!(disk.has_failed(), "change {changes} is none of the batch's");
        disk.fail_after(i64::MAX);
        assert!(outcomes.iter().any(|outcome| matches!(outcome, Outcome::Unknown(_))) || log.health().is_ok());
        log.close().await.unwrap();
        drop(log);
        let log = Log::open(folder.path(), small_segments()).unwrap();
        let first = publish(&log, &more).await;
        assert_eq!(publish(&log, &more).await, first);
        assert_eq!(publish(&log, &sent).await, positions);
        sent.extend(more);
        positions.extend(first);
        assert_stored_once(&log, &sent, &positions).await;
    }
}

const FOLDER: &str = "LANDFALL_LOG_DEDUP_FOLDER";
const SENT: &str = "sent";
const KILLS: usize = 8;

/// Message `number`: what it is follows from its number, so that the parent can send it again.
fn numbered(number: u64) -> Message {
    let id = MessageId::from_bytes((u128::from(number) << 64 | 0x5eed).to_be_bytes());
    let time = landfall_core::Timestamp::from_millis(1_794_732_000_000);
    Message { time, ..message(&format!("key {}", number % 17), number as i64).with_id(id) }
}

#[tokio::test]
#[ignore = "is the process that the other test starts and kills"]
async fn publishes_numbers_until_it_is_killed() {
    let folder = std::env::var_os(FOLDER).expect("the other test says where");
    let log = Log::open(folder, small_segments()).unwrap();
    let stored = log.topics().await.unwrap().iter().map(|topic| topic.messages).sum::<u64>();
    for first in (stored.saturating_sub(50)..).step_by(7) {
        let batch: Vec<_> = (first..first + 7).map(numbered).collect();
        // Before they are: the parent must expect all of them to be there, or any, or none.
        std::io::stdout().lock().write_all(format!("{SENT} {}\n", first + 7).as_bytes()).unwrap();
        publish(&log, &batch).await;
    }
}

#[tokio::test]
async fn what_was_sent_before_a_kill_is_sent_again_and_is_there_once() {
    let folder = tempfile::tempdir().unwrap();
    let (mut sent, mut places): (u64, Vec<Position>) = (0, Vec::new());
    for round in 0..KILLS {
        sent =
            sent.max(run_until_killed("publishes_numbers_until_it_is_killed", FOLDER, folder.path(), 20 + round * 3));
        let log = Log::open(folder.path(), small_segments()).unwrap();
        let all: Vec<_> = (0..sent).map(numbered).collect();
        let positions = publish(&log, &all).await;
        assert_eq!(positions[..places.len()], places, "round {round}: first places stay");
        assert_stored_once(&log, &all, &positions).await;
        places = positions;
        log.close().await.unwrap();
    }
}
