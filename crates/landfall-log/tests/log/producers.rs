//! Idempotent producers: each sequence number is stored once and in order, whatever happens.

use std::fs;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use landfall_core::{ErrorCode, ErrorKind, Key, Message, MessageId, Outcome, Position, ProducerName, TopicName};
use landfall_log::{Acknowledge, Flush, Gaps, Log, Options, Producer, TopicSettings};
use landfall_testkit::VIOLATION;
use tokio::task::JoinHandle;

use crate::counting_disk::CountingDisk;
use crate::failing_disk::FailingDisk;
use crate::support::*;

fn small_segments() -> Options {
    Options { segment_bytes: 2048, preallocate_bytes: 512, ..one_partition() }
}

fn name(text: &str) -> ProducerName {
    ProducerName::new(text).unwrap()
}

async fn open(folder: &tempfile::TempDir, options: Options) -> Log {
    let log = Log::open(folder.path(), options).unwrap();
    log.create_topic(&topic(), Some(options.partitions), TopicSettings::default()).await.unwrap();
    log
}

/// The messages with these sequence numbers; always the same apart from their ids.
fn numbered(range: std::ops::Range<u64>) -> Vec<Message> {
    range.map(|n| message("k", n as i64)).collect()
}

async fn send(producer: &Producer, range: std::ops::Range<u64>) -> Vec<Outcome> {
    producer.publish(&topic(), 0, range.start, &numbered(range)).await
}

fn offsets(outcomes: &[Outcome]) -> Vec<u64> {
    let offset = |outcome: &Outcome| match outcome {
        Outcome::Accepted(Position { partition: 0, offset }) => *offset,
        other => panic!("not accepted: {other:?}"),
    };
    outcomes.iter().map(offset).collect()
}

fn assert_refused(outcomes: &[Outcome], code: &ErrorCode, retriable: bool, reason: &str) {
    assert!(!outcomes.is_empty());
    for outcome in outcomes {
        let Outcome::Refused(refusal) = outcome else { panic!("not refused: {outcome:?}") };
        assert_eq!((&refusal.code, refusal.retriable), (code, retriable), "{refusal:?}");
        assert!(refusal.reason.contains(reason), "{}", refusal.reason);
    }
}

/// The stored sequence numbers, in order.
async fn stored(log: &Log) -> Vec<i64> {
    read_all(log).await.iter().map(|message| message.sequence.unwrap()).collect()
}

/// Sends without waiting for the outcome. The queue of the log keeps the order.
async fn begin(producer: &Producer, range: std::ops::Range<u64>) -> JoinHandle<Vec<Outcome>> {
    let (producer, topic) = (producer.clone(), topic());
    let sent = tokio::spawn(async move {
        let batch = numbered(range.clone());
        producer.publish(&topic, 0, range.start, &batch).await
    });
    // On a single-threaded runtime the spawned task has reached the writer's queue when this returns.
    tokio::task::yield_now().await;
    sent
}

#[tokio::test]
async fn repeated_sequences_get_their_first_position() {
    let folder = quick_folder();
    let log = open(&folder, one_partition()).await;
    let producer = log.producer(&name("till-1")).await.unwrap();
    assert_eq!((producer.id(), producer.epoch()), (0, 0));
    assert_eq!(producer.next_sequence(&topic(), 0).await.unwrap(), 0);
    assert_eq!(offsets(&send(&producer, 0..3).await), [0, 1, 2]);
    assert_eq!(producer.next_sequence(&topic(), 0).await.unwrap(), 3);
    assert_eq!(offsets(&send(&producer, 0..3).await), [0, 1, 2], "a whole batch repeated");
    assert_eq!(offsets(&send(&producer, 1..2).await), [1], "a part of it");
    assert_eq!(offsets(&send(&producer, 2..5).await), [2, 3, 4], "partly repeated");
    assert_eq!(offsets(&send(&producer, 0..6).await), [0, 1, 2, 3, 4, 5], "across batch boundaries");
    assert_eq!(producer.publish(&topic(), 0, 99, &[]).await, [], "an empty batch is not a gap");
    assert_eq!(stored(&log).await, [0, 1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn repeated_sequence_is_a_duplicate_whatever_its_id_and_content() {
    let folder = quick_folder();
    let log = open(&folder, one_partition()).await;
    let producer = log.producer(&name("till-1")).await.unwrap();
    let first = numbered(0..1);
    producer.publish(&topic(), 0, 0, &first).await;
    let other = Message { payload: "other".into(), ..message("k", 0) };
    assert_eq!(offsets(&producer.publish(&topic(), 0, 0, &[other]).await), [0]);
    assert_eq!(read_all(&log).await, first);
    // Its id is also known: publishing it without a sequence returns the same position.
    assert_eq!(publish(&log, &first).await, [Position { partition: 0, offset: 0 }]);
}

#[tokio::test]
async fn duplicates_are_found_thousands_of_batches_later() {
    let folder = quick_folder();
    let options = Options { acknowledge: Acknowledge::Written, flush: Flush::EveryMessages(500), ..small_segments() };
    let mut log = open(&folder, options).await;
    let mut producer = log.producer(&name("till-1")).await.unwrap();
    let other = log.producer(&name("till-2")).await.unwrap();
    // Another producer's messages are in between, so that offsets and sequence numbers differ.
    let mut expected = Vec::new();
    for n in 0..3000_u64 {
        if n % 3 == 0 {
            send(&other, n / 3..n / 3 + 1).await;
        }
        expected.extend(offsets(&send(&producer, n..n + 1).await));
    }
    assert!(segments(folder.path(), 0).len() > 100);
    for restarts in 0..3 {
        for first in [0, 1, 2, 700, 1499, 2990] {
            let again = send(&producer, first..first + 10).await;
            assert_eq!(offsets(&again), expected[first as usize..first as usize + 10], "after {restarts} restarts");
        }
        for (n, offset) in (0_u64..).zip(&expected).step_by(11) {
            assert_eq!(offsets(&send(&producer, n..n + 1).await), [*offset], "after {restarts} restarts");
        }
        log.close().await.unwrap();
        if restarts == 1 {
            // Opening the log rebuilds missing and damaged indexes.
            for path in segments(folder.path(), 0).iter().step_by(2) {
                let _ = fs::remove_file(path.with_extension("index"));
            }
            fs::write(segments(folder.path(), 0)[1].with_extension("index"), "no index").unwrap();
        }
        log = open(&folder, options).await;
        producer = log.producer(&name("till-1")).await.unwrap();
        assert_eq!(producer.next_sequence(&topic(), 0).await.unwrap(), 3000);
    }
    assert_eq!(offsets(&send(&producer, 2999..3001).await), [expected[2999], 4000]);
    // Readers see synced messages, and closing syncs all of them.
    log.close().await.unwrap();
    assert_eq!(read_all(&log).await.len(), 4001);
}

#[tokio::test]
async fn registering_again_raises_the_epoch_and_keeps_sequences() {
    let folder = quick_folder();
    let mut log = open(&folder, one_partition()).await;
    for epoch in 0..4_u16 {
        let producer = log.producer(&name("till-1")).await.unwrap();
        assert_eq!((producer.id(), producer.epoch()), (0, epoch));
        let next = producer.next_sequence(&topic(), 0).await.unwrap();
        assert_eq!(next, u64::from(epoch) * 2);
        assert_eq!(offsets(&send(&producer, next..next + 2).await), [next, next + 1]);
        if epoch % 2 == 1 {
            log.close().await.unwrap();
            log = open(&folder, one_partition()).await;
        }
    }
    assert_eq!(log.producer(&name("till-2")).await.unwrap().id(), 1);
    assert_eq!(stored(&log).await, (0..8).collect::<Vec<_>>());
}

#[tokio::test]
async fn replaced_producer_is_fenced() {
    let folder = quick_folder();
    let log = open(&folder, one_partition()).await;
    let old = log.producer(&name("till-1")).await.unwrap();
    send(&old, 0..2).await;
    let new = log.producer(&name("till-1")).await.unwrap();
    // Before and after the new instance writes; also for duplicates and gaps.
    for range in [2..3, 0..1, 7..8] {
        assert_refused(&send(&old, range).await, &ErrorCode::FENCED, false, "a newer instance of this producer");
    }
    assert_eq!(offsets(&send(&new, 2..3).await), [2]);
    assert_refused(&send(&old, 3..4).await, &ErrorCode::FENCED, false, "fenced permanently");
    assert_eq!(stored(&log).await, [0, 1, 2]);

    // After a restart the newest epoch is known, although it has written nothing.
    let newest = log.producer(&name("till-1")).await.unwrap();
    assert_eq!(newest.epoch(), 2);
    log.close().await.unwrap();
    assert_refused(&send(&newest, 3..4).await, &ErrorCode::UNAVAILABLE, true, "the log is closed");
    let log = open(&folder, one_partition()).await;
    assert_eq!(log.producer(&name("till-1")).await.unwrap().epoch(), 3);
}

/// Holds early messages for longer than a test may take.
fn long_hold() -> Options {
    let gaps = Gaps::Hold { batches: 64, bytes: 1 << 20, time: Duration::from_secs(3600) };
    Options { gaps, ..one_partition() }
}

#[tokio::test]
async fn held_batches_of_a_replaced_producer_are_fenced() {
    let folder = quick_folder();
    let log = open(&folder, long_hold()).await;
    let old = log.producer(&name("till-1")).await.unwrap();
    let early = begin(&old, 1..3).await;
    let new = log.producer(&name("till-1")).await.unwrap();
    assert_eq!(offsets(&send(&new, 0..1).await), [0]);
    assert_refused(&early.await.unwrap(), &ErrorCode::FENCED, false, "newer instance");
    assert_eq!(offsets(&send(&new, 1..2).await), [1]);
    assert_eq!(stored(&log).await, [0, 1]);
}

#[tokio::test]
async fn early_batches_are_held_until_the_gap_closes() {
    let folder = quick_folder();
    let log = open(&folder, long_hold()).await;
    let producer = log.producer(&name("till-1")).await.unwrap();
    let mut early = Vec::new();
    for range in [5..9, 2..3, 3..5, 11..12] {
        early.push(begin(&producer, range).await);
    }
    assert_eq!(producer.next_sequence(&topic(), 0).await.unwrap(), 0);
    assert!(early.iter().all(|sent| !sent.is_finished()));
    assert_eq!(offsets(&send(&producer, 0..1).await), [0], "the gap is smaller but still open");
    assert!(early.iter().all(|sent| !sent.is_finished()));
    assert_eq!(offsets(&send(&producer, 1..2).await), [1]);
    let last = early.pop().unwrap();
    let mut released = Vec::new();
    for sent in early {
        released.push(offsets(&sent.await.unwrap()));
    }
    assert_eq!(released, [vec![5, 6, 7, 8], vec![2], vec![3, 4]]);
    assert!(!last.is_finished());
    // The batch that closes the gap may repeat a part of the held one.
    assert_eq!(offsets(&send(&producer, 9..13).await), [9, 10, 11, 12]);
    assert_eq!(offsets(&last.await.unwrap()), [11]);
    assert_eq!(stored(&log).await, (0..13).collect::<Vec<_>>());
}

#[tokio::test]
async fn unclosed_gap_is_refused_after_the_hold_time() {
    let folder = quick_folder();
    let gaps = Gaps::Hold { batches: 8, bytes: 1 << 20, time: Duration::from_millis(50) };
    let log = open(&folder, Options { gaps, ..one_partition() }).await;
    let producer = log.producer(&name("till-1")).await.unwrap();
    let early = tokio::time::timeout(SOON, send(&producer, 3..5)).await.expect("the hold time is limited");
    assert_refused(&early, &ErrorCode::SEQUENCE_GAP, true, "sequence 0 comes first");
    assert_eq!(offsets(&send(&producer, 0..3).await), [0, 1, 2]);
    assert_eq!(offsets(&send(&producer, 3..5).await), [3, 4]);
    assert_eq!(stored(&log).await, [0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn held_batches_and_bytes_are_limited_per_producer() {
    for (batches, bytes) in [(2, 1 << 20), (100, 250)] {
        let folder = quick_folder();
        let gaps = Gaps::Hold { batches, bytes, time: Duration::from_secs(3600) };
        let log = open(&folder, Options { gaps, ..one_partition() }).await;
        let (one, other) = (log.producer(&name("till-1")).await.unwrap(), log.producer(&name("till-2")).await.unwrap());
        let first = begin(&one, 1..2).await;
        let second = begin(&one, 2..3).await;
        assert_refused(&send(&one, 3..9).await, &ErrorCode::SEQUENCE_GAP, true, "sequence 0 comes first");
        assert_refused(&send(&one, 2..3).await, &ErrorCode::SEQUENCE_GAP, true, "sequence 0 comes first");
        // Each producer has its own limit, and messages in order are never held.
        let elsewhere = begin(&other, 1..2).await;
        assert_eq!(offsets(&send(&other, 0..1).await), [0]);
        assert_eq!(offsets(&elsewhere.await.unwrap()), [1]);
        assert_eq!(offsets(&send(&one, 0..1).await), [2]);
        assert_eq!((offsets(&first.await.unwrap()), offsets(&second.await.unwrap())), (vec![3], vec![4]));
        assert_eq!(offsets(&send(&one, 3..9).await), [5, 6, 7, 8, 9, 10]);
    }
}

#[tokio::test]
async fn gaps_are_refused_at_once_with_gaps_refuse() {
    let folder = quick_folder();
    let log = open(&folder, Options { gaps: Gaps::Refuse, ..one_partition() }).await;
    let producer = log.producer(&name("till-1")).await.unwrap();
    send(&producer, 0..2).await;
    assert_refused(&send(&producer, 3..5).await, &ErrorCode::SEQUENCE_GAP, true, "sequence 2 comes first");
    assert_eq!(offsets(&send(&producer, 2..4).await), [2, 3]);
}

#[tokio::test]
async fn held_batches_are_refused_on_close_and_topic_deletion() {
    let folder = quick_folder();
    let gaps = Gaps::Hold { batches: 8, bytes: 1 << 20, time: Duration::from_millis(200) };
    let log = open(&folder, Options { gaps, ..one_partition() }).await;
    let producer = log.producer(&name("till-1")).await.unwrap();
    let early = begin(&producer, 1..2).await;
    log.delete_topic(&topic()).await.unwrap();
    assert_refused(&early.await.unwrap(), &ErrorCode::SEQUENCE_GAP, true, "sequence 0 comes first");
    log.create_topic(&topic(), Some(1), TopicSettings::default()).await.unwrap();
    let early = begin(&producer, 1..2).await;
    log.close().await.unwrap();
    assert_refused(&early.await.unwrap(), &ErrorCode::SEQUENCE_GAP, true, "sequence 0 comes first");
    let log = open(&folder, one_partition()).await;
    assert_eq!(stored(&log).await, Vec::<i64>::new());
}

#[tokio::test]
async fn sequences_are_per_producer_and_partition() {
    let folder = quick_folder();
    let log = open(&folder, Options { partitions: 2, ..small_segments() }).await;
    let producers = [log.producer(&name("till-1")).await.unwrap(), log.producer(&name("till-2")).await.unwrap()];
    let key = |partition| {
        let all = (0..).map(|n| Key::new(format!("key {n}")).unwrap());
        all.into_iter().find(|key| key.partition(2) == partition).unwrap()
    };
    let keys = [key(0), key(1)];
    let mut positions = Vec::new();
    for round in 0..2 {
        for n in 0..40_u64 {
            for producer in &producers {
                for partition in 0..2_u32 {
                    let message = message(keys[partition as usize].as_str(), n as i64);
                    let outcomes = producer.publish(&topic(), partition, n, &[message]).await;
                    let Outcome::Accepted(position) = outcomes[0] else { panic!("{outcomes:?}") };
                    assert_eq!(position.partition, partition);
                    positions.push(position);
                }
            }
        }
        assert_eq!(positions.len(), 160 * (round + 1));
    }
    assert_eq!(positions[..160], positions[160..], "the second round has only duplicates");
    let unsequenced = publish(&log, &[message(keys[0].as_str(), 99)]).await;
    assert_eq!(unsequenced, [Position { partition: 0, offset: 80 }], "publishing without a sequence is independent");
    assert_eq!(producers[0].next_sequence(&topic(), 0).await.unwrap(), 40);
    assert_eq!(read_all(&log).await.len(), 161);
}

#[tokio::test]
async fn invalid_producer_batches_are_refused_with_a_reason() {
    let folder = quick_folder();
    let log = open(&folder, Options { partitions: 2, ..small_segments() }).await;
    let producer = log.producer(&name("till-1")).await.unwrap();
    let one = message("k", 0);
    let home = one.key.as_ref().unwrap().partition(2);
    let outcomes = producer.publish(&topic(), 1 - home, 0, std::slice::from_ref(&one)).await;
    assert_refused(&outcomes, &ErrorCode::VALIDATION, false, "does not belong to partition");
    let outcomes = producer.publish(&topic(), 2, 0, std::slice::from_ref(&one)).await;
    assert_refused(&outcomes, &ErrorCode::VALIDATION, false, "has no partition 2; its partitions are 0 to 1");
    let elsewhere = TopicName::new("elsewhere").unwrap();
    let outcomes = producer.publish(&elsewhere, home, 0, std::slice::from_ref(&one)).await;
    assert_refused(&outcomes, &ErrorCode::UNAVAILABLE, false, "there is no topic elsewhere");
    let stray = Message { topic: elsewhere.clone(), ..one.clone() };
    let outcomes = producer.publish(&topic(), home, 0, &[one.clone(), stray]).await;
    assert_refused(&outcomes, &ErrorCode::VALIDATION, false, "does not belong to partition");
    let outcomes = producer.publish(&topic(), home, u64::MAX, &[one.clone(), one.clone()]).await;
    assert_refused(&outcomes, &ErrorCode::VALIDATION, false, "2 sequences from");
    let many: Vec<_> = (0..50).map(|n| message("k", n)).collect();
    let outcomes = producer.publish(&topic(), home, 0, &many).await;
    assert_refused(&outcomes, &ErrorCode::TOO_LARGE, false, "send it in smaller batches");
    let large = Message { payload: vec![b'x'; 4096].into(), ..one.clone() };
    let outcomes = producer.publish(&topic(), home, 0, &[large]).await;
    assert_refused(&outcomes, &ErrorCode::TOO_LARGE, false, "the message has");
    assert_eq!(producer.next_sequence(&topic(), 3).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(producer.next_sequence(&elsewhere, 0).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(producer.next_sequence(&topic(), home).await.unwrap(), 0, "refused messages use no sequence numbers");
    assert_eq!(stored(&log).await, Vec::<i64>::new());
}

#[tokio::test]
async fn producer_accepts_messages_up_to_the_usual_size_limit() {
    let folder = quick_folder();
    let log = open(&folder, one_partition()).await;
    let producer = log.producer(&name("till-1")).await.unwrap();
    let large = Message { payload: vec![b'x'; 3 << 20].into(), ..message("k", 0) };
    assert_eq!(offsets(&producer.publish(&topic(), 0, 0, std::slice::from_ref(&large)).await), [0]);
    assert_eq!(read_all(&log).await, [large]);
}

/// The disk is full at each change that a batch makes, one after the other.
#[tokio::test]
async fn sequences_refused_on_a_full_disk_can_be_sent_again() {
    let (mut refused, options) = (0, Options { gaps: Gaps::Refuse, ..small_segments() });
    for changes in 0..30 {
        let folder = quick_folder();
        let disk = Arc::new(FailingDisk::new(io::ErrorKind::StorageFull));
        let mut log = Log::open_on(disk.clone(), folder.path(), options).unwrap();
        log.create_topic(&topic(), Some(1), TopicSettings::default()).await.unwrap();
        let mut producer = log.producer(&name("till-1")).await.unwrap();
        for n in 0..10 {
            send(&producer, n..n + 1).await;
        }
        disk.fail_after(changes);
        for n in 10..40 {
            let outcomes = send(&producer, n..n + 1).await;
            refused += u64::from(!outcomes[0].is_accepted());
        }
        disk.fail_after(i64::MAX);
        if log.health().is_err() {
            log.close().await.unwrap();
            drop((log, producer));
            log = Log::open(folder.path(), options).unwrap();
            producer = log.producer(&name("till-1")).await.unwrap();
        }
        // Including messages stored before, in segments that could or could not be finished.
        for n in 0..40 {
            assert_eq!(offsets(&send(&producer, n..n + 1).await), [n], "change {changes}");
        }
        assert_eq!(stored(&log).await, (0..40).collect::<Vec<_>>(), "change {changes}");
        log.close().await.unwrap();
        drop((log, producer));
        let log = Log::open(folder.path(), options).unwrap();
        let producer = log.producer(&name("till-1")).await.unwrap();
        assert_eq!(offsets(&send(&producer, 0..9).await), (0..9).collect::<Vec<_>>(), "change {changes}");
    }
    assert!(refused > 100, "the test needs a full disk: {refused}");
}

#[tokio::test]
async fn producer_state_is_restored_from_last_segment_and_indexes() {
    let folder = quick_folder();
    let options = Options { segment_bytes: 16 * 1024, ..small_segments() };
    let log = open(&folder, options).await;
    let first = log.producer(&name("till-1")).await.unwrap();
    assert_eq!(offsets(&send(&first, 0..7).await).len(), 7);
    // The first producer is silent for many segments.
    let busy = log.producer(&name("till-2")).await.unwrap();
    for n in 0..300 {
        send(&busy, n * 10..(n + 1) * 10).await;
    }
    log.close().await.unwrap();
    drop((log, first, busy));
    let paths = segments(folder.path(), 0);
    let (last, finished) = paths.split_last().unwrap();
    assert!(finished.len() > 10);

    let disk = CountingDisk::default();
    let log = Log::open_on(Arc::new(disk.clone()), folder.path(), options).unwrap();
    let [first, busy] = [log.producer(&name("till-1")).await.unwrap(), log.producer(&name("till-2")).await.unwrap()];
    assert_eq!(first.next_sequence(&topic(), 0).await.unwrap(), 7);
    assert_eq!(busy.next_sequence(&topic(), 0).await.unwrap(), 3000);
    let read = disk.read();
    for path in finished {
        assert_eq!(read.get(path), Some(&(HEADER as u64)), "only the header of {}", path.display());
    }
    assert!(read[last] > HEADER as u64);
    assert_eq!(offsets(&send(&first, 5..8).await), [5, 6, 3007]);
    let read = disk.read();
    assert!(finished.iter().all(|path| read[path] == HEADER as u64), "duplicates are looked up in indexes only");
}

#[tokio::test]
async fn missing_or_outdated_producer_list_is_reported() {
    let folder = quick_folder();
    let log = open(&folder, small_segments()).await;
    let list = folder.path().join("producers.json");
    send(&log.producer(&name("till-1")).await.unwrap(), 0..5).await;
    let old = fs::read(&list).unwrap();
    send(&log.producer(&name("till-1")).await.unwrap(), 5..9).await;
    log.close().await.unwrap();
    drop(log);
    let good = fs::read(&list).unwrap();
    for bad in [None, Some(old)] {
        match bad {
            None => fs::remove_file(&list).unwrap(),
            Some(old) => fs::write(&list, old).unwrap(),
        }
        let error = Log::open(folder.path(), small_segments()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("producers.json"), "{error}");
    }
    fs::write(&list, good).unwrap();
    let log = Log::open(folder.path(), small_segments()).unwrap();
    assert_eq!(log.producer(&name("till-1")).await.unwrap().epoch(), 2);
}

const FOLDER: &str = "LANDFALL_LOG_PRODUCERS_FOLDER";
const KILLS: u64 = 8;

#[tokio::test]
#[ignore = "runs as a child process that another test starts and kills"]
async fn child_sends_sequences_until_killed() {
    let folder = std::env::var_os(FOLDER).expect("the parent sets the folder");
    let log = Log::open(folder, small_segments()).unwrap();
    log.create_topic(&topic(), Some(1), TopicSettings::default()).await.unwrap();
    let producer = log.producer(&name("till-1")).await.unwrap();
    let next = producer.next_sequence(&topic(), 0).await.unwrap();
    // A restarted producer does not know which messages were acknowledged, nor how they were batched.
    for first in (next.saturating_sub(20)..).step_by(3) {
        std::io::stdout().lock().write_all(format!("sent {}\n", first + 3).as_bytes()).unwrap();
        assert!(send(&producer, first..first + 3).await.iter().all(Outcome::is_accepted));
    }
}

#[tokio::test]
async fn messages_resent_after_a_kill_are_stored_once() {
    let folder = tempfile::tempdir().unwrap();
    let (mut sent, mut ids): (u64, Vec<MessageId>) = (0, Vec::new());
    for round in 0..KILLS {
        sent = sent.max(run_until_killed(
            "producers::child_sends_sequences_until_killed",
            FOLDER,
            folder.path(),
            (25 + round * 4) as usize,
        ));
        let log = Log::open(folder.path(), small_segments()).unwrap();
        let producer = log.producer(&name("till-1")).await.unwrap();
        assert_eq!(u64::from(producer.epoch()), 2 * round + 1);
        for first in (0..sent).step_by(8) {
            let range = first..sent.min(first + 8);
            assert_eq!(offsets(&send(&producer, range.clone()).await), range.collect::<Vec<_>>(), "round {round}");
        }
        let all = read_all(&log).await;
        assert!(all.iter().map(|message| message.sequence.unwrap() as u64).eq(0..sent), "{VIOLATION} round {round}");
        assert!(
            all.iter().map(|message| message.id).take(ids.len()).eq(ids),
            "{VIOLATION} round {round}: stored messages stay"
        );
        ids = all.iter().map(|message| message.id).collect();
        log.close().await.unwrap();
    }
}

#[tokio::test]
async fn producer_continues_after_retention_removed_its_messages() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), small_segments()).unwrap();
    let keep = TopicSettings { retention_bytes: Some(1), ..TopicSettings::default() };
    log.create_topic(&topic(), Some(1), keep).await.unwrap();
    let producer = log.producer(&name("relay")).await.unwrap();
    let sent = [Message::new(topic(), "one"), Message::new(topic(), "two")];
    assert_eq!(offsets(&producer.publish(&topic(), 0, 0, &sent).await), [0, 1]);
    publish_each(&log, 0..200).await;
    let removed = log.maintain().await.unwrap().removed_messages;
    assert!(removed > 2);
    drop(producer);
    log.close().await.unwrap();

    for _ in 0..2 {
        let log = Log::open(folder.path(), small_segments()).unwrap();
        let producer = log.producer(&name("relay")).await.unwrap();
        assert_eq!(producer.next_sequence(&topic(), 0).await.unwrap(), 2);
        // The log only remembers that these messages were stored, not where.
        assert_eq!(offsets(&producer.publish(&topic(), 0, 0, &sent).await), [removed, removed]);
        log.close().await.unwrap();
    }
}

#[tokio::test]
async fn after_growth_only_duplicates_are_accepted_in_the_old_partition() {
    let folder = quick_folder();
    let log = Log::open(folder.path(), small_segments()).unwrap();
    log.create_topic(&topic(), Some(1), TopicSettings::default()).await.unwrap();
    let producer = log.producer(&name("relay")).await.unwrap();
    let keys = (0..).map(|n| Key::new(format!("k{n}")).unwrap());
    let moved = keys.into_iter().find(|key| key.partition(2) == 1).unwrap();
    let sent = Message::new(topic(), "one").with_key(moved);
    assert_eq!(offsets(&producer.publish(&topic(), 0, 0, std::slice::from_ref(&sent)).await), [0]);
    log.grow_topic(&topic(), 2).await.unwrap();

    assert_eq!(offsets(&producer.publish(&topic(), 0, 0, std::slice::from_ref(&sent)).await), [0]);
    let with_more = [sent.clone(), Message::new(topic(), "two")];
    assert_eq!(offsets(&producer.publish(&topic(), 0, 0, &with_more).await), [0, 1]);
    let outcomes = producer.publish(&topic(), 0, 2, &[sent]).await;
    assert_refused(&outcomes, &ErrorCode::VALIDATION, false, "does not belong to partition 0");
}
