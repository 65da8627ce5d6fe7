//! Opening a log whose files were truncated, overwritten or damaged.

use std::fs;
use std::path::PathBuf;

use landfall_core::{Broker, ErrorKind, Message, StartAt};
use landfall_log::{Log, Options};

use crate::support::*;

/// A closed log with one partition; each message is in its own batch.
struct Stored {
    folder: tempfile::TempDir,
    messages: Vec<Message>,
    segment: PathBuf,
    bytes: Vec<u8>,
}

async fn stored(count: i64) -> Stored {
    let folder = quick_folder();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    let messages = publish_each(&log, 0..count).await;
    log.close().await.unwrap();
    let segment = segments(folder.path(), 0).pop().unwrap();
    let bytes = fs::read(&segment).unwrap();
    Stored { folder, messages, segment, bytes }
}

impl Stored {
    /// Opens the log and asserts that it has exactly the first `count` messages and accepts new ones after them.
    async fn assert_recovers(&self, count: usize, what: &str) {
        let log = Log::open(self.folder.path(), one_partition()).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(read_all(&log).await, self.messages[..count], "{what}");
        let next = message("k", 1_000);
        let positions = publish(&log, std::slice::from_ref(&next)).await;
        assert_eq!(positions[0].offset, count as u64, "{what}");
        log.close().await.unwrap();

        let log = Log::open(self.folder.path(), one_partition()).unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut expected = self.messages[..count].to_vec();
        expected.push(next);
        assert_eq!(read_all(&log).await, expected, "{what}, after one more message");
        log.close().await.unwrap();
    }
}

/// The state after a crash during a write: all bytes up to some position, then the zeros that were there before.
#[tokio::test]
async fn tail_torn_at_any_byte_loses_only_unwritten_batches() {
    let stored = stored(6).await;
    let bounds = batch_bounds(&stored.bytes);
    let [.., before, middle, end] = bounds[..] else { panic!("there are six batches") };
    for written in before..end {
        let mut bytes = stored.bytes.clone();
        bytes[written..].fill(0);
        fs::write(&stored.segment, [&bytes[..], &[0; 100]].concat()).unwrap();
        // The last byte of a batch is never zero.
        let left = if written < middle { 4 } else { 5 };
        stored.assert_recovers(left, &format!("written up to byte {written}")).await;
    }
}

/// A crash cannot change a byte into another value, nor shorten a preallocated file.
#[tokio::test]
async fn changed_or_truncated_last_batch_is_reported_as_damage() {
    let stored = stored(4).await;
    let bounds = batch_bounds(&stored.bytes);
    let [.., before, end] = bounds[..] else { panic!("there are four batches") };
    let refused = |bytes: &[u8], what: &str| {
        fs::write(&stored.segment, bytes).unwrap();
        assert_refused_as_corrupt(stored.folder.path(), &stored.segment, what);
        assert_eq!(fs::read(&stored.segment).unwrap(), bytes, "a refusal changes nothing");
    };
    for at in before..end {
        let mut bytes = stored.bytes.clone();
        bytes[at] ^= 0x10;
        refused(&bytes, &format!("byte {at} flipped"));
        if at > before {
            refused(&stored.bytes[..at], &format!("cut at byte {at}"));
        }
        let mut bytes = stored.bytes.clone();
        bytes[at..].fill(0xff);
        refused(&bytes, &format!("filled from byte {at}"));
    }
    fs::write(&stored.segment, &stored.bytes).unwrap();
    stored.assert_recovers(4, "unchanged").await;
}

#[tokio::test]
async fn zeros_after_the_last_batch_are_free_space_and_garbage_is_damage() {
    let stored = stored(3).await;
    let bounds = batch_bounds(&stored.bytes);
    let first_batch = &stored.bytes[bounds[0]..bounds[1]];
    for (what, tail) in [("one zero", vec![0]), ("a page of zeros", vec![0; 4096])] {
        fs::write(&stored.segment, [&stored.bytes[..], &tail].concat()).unwrap();
        stored.assert_recovers(3, what).await;
    }
    let tails: [(&str, Vec<u8>); 3] = [
        ("as many bytes as a header", vec![0xa5; HEADER]),
        ("a copy of an earlier batch of the same file", first_batch.to_vec()),
        ("repeated magic bytes of a batch", b"LFB\x01".repeat(100)),
    ];
    for (what, tail) in tails {
        fs::write(&stored.segment, [&stored.bytes[..], &tail].concat()).unwrap();
        assert_refused_as_corrupt(stored.folder.path(), &stored.segment, what);
    }
}

#[tokio::test]
async fn payload_that_contains_a_segment_is_not_parsed_as_one() {
    let other = stored(5).await;
    let folder = quick_folder();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    let messages = publish_each(&log, 0..2).await;
    let nested = Message::new(topic(), other.bytes.clone());
    publish(&log, std::slice::from_ref(&nested)).await;
    log.close().await.unwrap();
    // The write stopped inside the payload, after nested batches with higher offsets.
    let segment = segments(folder.path(), 0).pop().unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    let last = bytes.len() - 1;
    bytes[last] = 0;
    fs::write(&segment, &bytes).unwrap();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    assert_eq!(read_all(&log).await, messages);
}

#[tokio::test]
async fn flipped_byte_before_the_last_batch_is_reported_as_damage() {
    let stored = stored(5).await;
    let bounds = batch_bounds(&stored.bytes);
    // All bytes from the segment's header to the last batch but one.
    for at in 0..bounds[4] {
        let mut bytes = stored.bytes.clone();
        bytes[at] ^= 0x10;
        fs::write(&stored.segment, &bytes).unwrap();
        assert_refused_as_corrupt(stored.folder.path(), &stored.segment, &format!("byte {at} flipped"));
        assert_eq!(fs::read(&stored.segment).unwrap(), bytes, "a refusal changes nothing");
    }
    fs::write(&stored.segment, &stored.bytes).unwrap();
    stored.assert_recovers(5, "unchanged").await;
}

#[tokio::test]
async fn error_names_the_position_of_the_damaged_batch() {
    let stored = stored(5).await;
    let bounds = batch_bounds(&stored.bytes);
    let mut bytes = stored.bytes.clone();
    bytes[bounds[2] + HEADER + 3] ^= 1;
    fs::write(&stored.segment, &bytes).unwrap();
    let error = Log::open(stored.folder.path(), one_partition()).unwrap_err();
    assert!(error.to_string().contains(&format!("damaged at byte {}: the checksum", bounds[2])), "{error}");
}

#[tokio::test]
async fn damage_in_an_open_log_is_never_served() {
    let stored = stored(5).await;
    let bounds = batch_bounds(&stored.bytes);
    for at in (bounds[2]..bounds[3]).step_by(5) {
        fs::write(&stored.segment, &stored.bytes).unwrap();
        let log = Log::open(stored.folder.path(), one_partition()).unwrap();
        let mut bytes = stored.bytes.clone();
        bytes[at] ^= 0x80;
        fs::write(&stored.segment, &bytes).unwrap();

        let mut reader = log.read(&topic(), StartAt::Beginning).await.unwrap();
        let (read, outcome) = drain(&mut *reader).await;
        assert_eq!(messages(read), stored.messages[..2], "byte {at}");
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Corrupt, "byte {at}");
        let again = reader.read(10).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Corrupt, "a second read does not skip the damage");

        let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
        for expected in &stored.messages[..2] {
            let delivery = next(&mut subscriber).await;
            assert_eq!(delivery.message.as_ref().unwrap(), expected);
            delivery.ack().await.unwrap();
        }
        assert_eq!(subscriber.next().await.unwrap_err().kind(), ErrorKind::Corrupt, "byte {at}");
        drop(subscriber);
        log.close().await.unwrap();
        fs::remove_dir_all(stored.folder.path().join("groups")).unwrap();
    }
}

#[tokio::test]
async fn batches_of_one_sync_are_truncated_from_the_first_missing_one() {
    let folder = quick_folder();
    // All space is preallocated at once, so that no sync happens in between.
    let options = Options { preallocate_bytes: 4 * 1024 * 1024, ..one_partition() };
    let log = Log::open(folder.path(), options).unwrap();
    let before = publish_each(&log, 0..2).await;
    // One publish call with two messages, each too large to share a batch: two writes, one sync.
    let large: Vec<_> = (0..2).map(|_| Message::new(topic(), vec![7; 700_000])).collect();
    publish(&log, &large).await;
    log.close().await.unwrap();

    let segment = segments(folder.path(), 0).pop().unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    let bounds = batch_bounds(&bytes);
    assert_eq!(bounds.len(), 5, "two small batches and two large ones");
    bytes[bounds[2]..bounds[3]].fill(0);
    fs::write(&segment, &bytes).unwrap();
    let log = Log::open(folder.path(), one_partition()).unwrap();
    assert_eq!(read_all(&log).await, before);
}

/// A closed log with several segments.
async fn rolled() -> (tempfile::TempDir, Vec<Message>, Options) {
    let folder = quick_folder();
    let options = Options { segment_bytes: 1024, ..one_partition() };
    let log = Log::open(folder.path(), options).unwrap();
    let messages = publish_each(&log, 0..24).await;
    log.close().await.unwrap();
    assert!(segments(folder.path(), 0).len() >= 4);
    (folder, messages, options)
}

#[tokio::test]
async fn log_of_many_segments_is_read_and_continued() {
    let (folder, mut messages, options) = rolled().await;
    let log = Log::open(folder.path(), options).unwrap();
    assert_eq!(read_all(&log).await, messages);
    messages.extend(publish_each(&log, 24..32).await);
    assert_eq!(read_all(&log).await, messages);
    for from in 0..32 {
        let mut reader = log.read(&topic(), StartAt::Offset(from as u64)).await.unwrap();
        let (stored, outcome) = drain(&mut *reader).await;
        outcome.unwrap();
        assert_eq!(crate::support::messages(stored), messages[from..]);
    }
}

#[tokio::test]
async fn missing_or_resized_earlier_segment_is_reported_as_damage() {
    let (folder, _, _) = rolled().await;
    let paths = segments(folder.path(), 0);
    for index in 0..paths.len() - 1 {
        let bytes = fs::read(&paths[index]).unwrap();
        let successor = &paths[index + 1];
        fs::remove_file(&paths[index]).unwrap();
        assert_refused_as_corrupt(folder.path(), successor, "removed");
        fs::write(&paths[index], &bytes[..bytes.len() - 1]).unwrap();
        assert_refused_as_corrupt(folder.path(), successor, "one byte shorter");
        fs::write(&paths[index], [&bytes[..], &[0]].concat()).unwrap();
        assert_refused_as_corrupt(folder.path(), successor, "one byte longer");
        fs::write(&paths[index], &bytes).unwrap();
    }
    Log::open(folder.path(), one_partition()).unwrap();
}

#[tokio::test]
async fn flipped_byte_in_an_earlier_segment_is_reported_to_readers() {
    let (folder, messages, options) = rolled().await;
    let paths = segments(folder.path(), 0);
    let bytes = fs::read(&paths[1]).unwrap();
    let first: usize = paths[1].file_stem().unwrap().to_str().unwrap().parse().unwrap();
    for at in (HEADER..batch_bounds(&bytes)[1]).step_by(11) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 2;
        fs::write(&paths[1], &flipped).unwrap();
        let log = Log::open(folder.path(), options).unwrap();
        let mut reader = log.read(&topic(), StartAt::Beginning).await.unwrap();
        let (stored, outcome) = drain(&mut *reader).await;
        assert_eq!(crate::support::messages(stored), messages[..first], "byte {at}");
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains(paths[1].to_str().unwrap()), "{error}");
    }
}

#[tokio::test]
async fn unfinished_segment_or_topic_is_ignored() {
    let stored = stored(3).await;
    let topics = stored.folder.path().join("topics");
    fs::write(topics.join("orders/0/new"), b"LFS").unwrap();
    fs::create_dir_all(topics.join("payments/0")).unwrap();
    let log = Log::open(stored.folder.path(), one_partition()).unwrap();
    assert_eq!(log.topics().await.unwrap().len(), 1);
    let mut elsewhere = message("k", 1);
    elsewhere.topic = "payments".parse().unwrap();
    publish(&log, &[elsewhere]).await;
    assert_eq!(log.topics().await.unwrap().len(), 2);
    drop(log);
    stored.assert_recovers(3, "with an unfinished segment").await;
}

#[tokio::test]
async fn group_progress_beyond_the_end_is_reported_as_damage() {
    let stored = stored(3).await;
    let log = Log::open(stored.folder.path(), one_partition()).unwrap();
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    for _ in 0..3 {
        next(&mut subscriber).await.ack().await.unwrap();
    }
    subscriber.close().await.unwrap();
    log.close().await.unwrap();

    let bounds = batch_bounds(&stored.bytes);
    fs::write(&stored.segment, &stored.bytes[..bounds[2]]).unwrap();
    let error = Log::open(stored.folder.path(), one_partition()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("group stock has finished everything before 3"), "{error}");
}

#[tokio::test]
async fn every_changed_byte_in_the_small_files_is_detected() {
    let stored = stored(3).await;
    let log = Log::open(stored.folder.path(), one_partition()).unwrap();
    let mut subscriber = log.subscribe(&topic(), &group()).await.unwrap();
    next(&mut subscriber).await.ack().await.unwrap();
    subscriber.close().await.unwrap();
    log.close().await.unwrap();
    for file in ["topics/orders/topic.json", "groups/stock/orders.json"] {
        let path = stored.folder.path().join(file);
        let bytes = fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            fs::write(&path, &changed).unwrap();
            let error = Log::open(stored.folder.path(), one_partition()).expect_err("a changed byte");
            assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at} of {file}: {error}");
        }
        fs::write(&path, &bytes).unwrap();
    }
    Log::open(stored.folder.path(), one_partition()).unwrap();
}
