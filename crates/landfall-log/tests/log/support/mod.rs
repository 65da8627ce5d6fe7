//! Helpers of the log's tests.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use landfall_core::adapter::{Delivery, Subscriber};
use landfall_core::{
    Broker, ErrorKind, GroupName, Key, Message, Outcome, Position, Publisher, Result, StartAt, StoredMessage,
    TopicName, TopicReader,
};
use landfall_log::{Log, Options};

/// A limit for waits, even on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// A folder in memory if possible: these tests sync often and do not depend on a real disk.
pub(crate) fn quick_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

pub(crate) fn topic() -> TopicName {
    TopicName::new("orders").unwrap()
}

pub(crate) fn group() -> GroupName {
    GroupName::new("stock").unwrap()
}

/// Message number `n` of the key `key`.
pub(crate) fn message(key: &str, n: i64) -> Message {
    Message::new(topic(), format!("payload {n} of {key}")).with_key(Key::new(key).unwrap()).with_sequence(n)
}

/// One partition, so that a test knows which file its messages are in.
pub(crate) fn one_partition() -> Options {
    Options { partitions: 1, ..Options::default() }
}

pub(crate) async fn publish(log: &Log, batch: &[Message]) -> Vec<Position> {
    let outcomes = log.publish(batch).await;
    let position = |outcome| match outcome {
        Outcome::Accepted(position) => position,
        other => panic!("not accepted: {other:?}"),
    };
    outcomes.into_iter().map(position).collect()
}

/// Publishes messages `range` of one key one by one, so that each is in its own batch.
pub(crate) async fn publish_each(log: &Log, range: std::ops::Range<i64>) -> Vec<Message> {
    let messages: Vec<_> = range.map(|n| message("k", n)).collect();
    for message in &messages {
        publish(log, std::slice::from_ref(message)).await;
    }
    messages
}

/// Reads until the end or the first error. Returns the messages, and the error if there was one.
pub(crate) async fn drain(reader: &mut dyn TopicReader) -> (Vec<StoredMessage>, Result<()>) {
    let mut stored = Vec::new();
    loop {
        match reader.read(100).await {
            Ok(batch) if batch.is_empty() => return (stored, Ok(())),
            Ok(batch) => stored.extend(batch),
            Err(error) => return (stored, Err(error)),
        }
    }
}

pub(crate) fn messages(stored: Vec<StoredMessage>) -> Vec<Message> {
    stored.into_iter().map(|stored| stored.message.unwrap()).collect()
}

/// All messages of the topic.
pub(crate) async fn read_all(log: &Log) -> Vec<Message> {
    let mut reader = log.read(&topic(), StartAt::Beginning).await.unwrap();
    let (stored, outcome) = drain(&mut *reader).await;
    outcome.unwrap();
    messages(stored)
}

pub(crate) async fn next(subscriber: &mut Box<dyn Subscriber>) -> Delivery {
    let delivery = tokio::time::timeout(SOON, subscriber.next()).await.expect("a delivery in time");
    delivery.unwrap().expect("the log is not closed")
}

/// Runs the ignored test `child` of this binary as a process, with `folder` in the environment variable `variable`.
/// Kills it after it has printed `sent N` more than `lines` times. Returns the largest N.
pub(crate) fn run_until_killed(child: &str, variable: &str, folder: &Path, lines: usize) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", child])
        .env(variable, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap()).lines();
    let numbers = output.map_while(std::result::Result::ok);
    let numbers = numbers.filter_map(|line| line.strip_prefix("sent ")?.parse::<u64>().ok());
    let mut sent = 0;
    for (line, number) in numbers.enumerate() {
        sent = sent.max(number);
        if line == lines {
            child.kill().unwrap();
        }
    }
    assert!(child.wait().unwrap().code().is_none(), "the child must be killed");
    sent
}

/// The segments of a partition of `orders`, in order.
pub(crate) fn segments(folder: &Path, partition: u32) -> Vec<PathBuf> {
    let directory = folder.join("topics/orders").join(partition.to_string());
    let mut paths: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "segment"));
    paths.sort();
    paths
}

/// The size of a segment's header.
pub(crate) const HEADER: usize = 64;
/// The size of a batch without its records: its header and one byte at the end.
const FRAME: usize = 72 + 1;

/// The start of each batch of a segment, and the end of the last one.
pub(crate) fn batch_bounds(segment: &[u8]) -> Vec<usize> {
    let mut bounds = vec![HEADER];
    let mut at = HEADER;
    while at < segment.len() {
        assert_eq!(&segment[at..at + 4], b"LFB\x01");
        let length = u32::from_le_bytes(segment[at + 8..at + 12].try_into().unwrap()) as usize;
        at += FRAME + length;
        bounds.push(at);
    }
    bounds
}

/// Asserts that opening fails as `Corrupt` with an error that names the file.
pub(crate) fn assert_refused_as_corrupt(folder: &Path, file: &Path, what: &str) {
    let error = Log::open(folder, one_partition()).expect_err(what);
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
    assert!(error.to_string().contains(file.file_name().unwrap().to_str().unwrap()), "{what}: {error}");
}
