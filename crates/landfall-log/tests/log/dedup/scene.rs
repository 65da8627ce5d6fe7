//! A log with small segments, and the messages for it.

use std::path::Path;

use landfall_core::{Broker, Message, Position, StartAt};
use landfall_log::{Log, Options, TopicSettings};
use landfall_testkit::VIOLATION;

use crate::support::*;

/// Segments that hold only a few messages.
pub(crate) fn small_segments() -> Options {
    Options { segment_bytes: 2048, preallocate_bytes: 512, partitions: 2, ..Options::default() }
}

pub(crate) fn without_deduplication() -> TopicSettings {
    TopicSettings { deduplicate: false, ..TopicSettings::default() }
}

/// Messages of many keys.
pub(crate) fn batch_of(count: i64) -> Vec<Message> {
    (0..count).map(|n| message(&format!("key {n}"), n)).collect()
}

pub(crate) async fn publish_one_by_one(log: &Log, messages: &[Message]) -> Vec<Position> {
    let mut positions = Vec::new();
    for message in messages {
        positions.extend(publish(log, std::slice::from_ref(message)).await);
    }
    positions
}

/// Asserts that the topic holds exactly `sent`, at `positions`.
pub(crate) async fn assert_stored_once(log: &Log, sent: &[Message], positions: &[Position]) {
    let mut reader = log.read(&topic(), StartAt::Beginning).await.unwrap();
    let (stored, outcome) = drain(&mut *reader).await;
    outcome.unwrap();
    let mut found: Vec<_> = stored.into_iter().map(|stored| (stored.position, stored.message.unwrap())).collect();
    let mut expected: Vec<_> = positions.iter().copied().zip(sent.iter().cloned()).collect();
    found.sort_by_key(|(position, _)| *position);
    expected.sort_by_key(|(position, _)| *position);
    assert_eq!(found, expected, "{VIOLATION} each message is stored once, at its position");
}

pub(crate) fn finished_segments(folder: &Path) -> usize {
    (0..2).map(|partition| segments(folder, partition).len().saturating_sub(1)).sum()
}

pub(crate) fn index_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let all = (0..2).flat_map(|partition| segments(folder, partition));
    all.map(|path| path.with_extension("index")).filter(|path| path.exists()).collect()
}
