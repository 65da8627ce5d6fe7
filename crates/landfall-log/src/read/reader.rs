//! Reads a topic without joining a group.

use std::sync::Arc;

use async_trait::async_trait;
use landfall_core::{Error, ErrorKind, Position, Result, StartAt, StoredMessage, TopicName, TopicReader};

use tracing::warn;

use crate::read::lanes::Lanes;
use crate::read::read_only::blocking;
use crate::read::seek;
use crate::storage::cursor::Extents;
use crate::storage::record::Record;
use crate::topic::open::{self as topic, Topic};

/// A reader of a topic in an open log. It sees only synced messages.
pub(crate) struct LogReader {
    name: TopicName,
    topic: Arc<Topic>,
    lanes: Lanes,
    /// Where to start in partitions that are added later; all their messages are newer than this reader.
    later: u64,
    collected: Vec<StoredMessage>,
}

impl LogReader {
    pub(crate) async fn open(name: TopicName, topic: Arc<Topic>, from: StartAt) -> Result<Self> {
        let later = seek::offset_in_later_partitions(from);
        blocking(move || {
            let mut lanes = Lanes::default();
            for partition in topic.partitions().iter() {
                let extents: Arc<dyn Extents> = partition.clone();
                let offset = seek::offset(&extents, from)?;
                lanes.add(extents, offset);
            }
            Ok(Self { name, topic, lanes, later, collected: Vec::new() })
        })
        .await
    }
}

#[async_trait]
impl TopicReader for LogReader {
    async fn read(&mut self, limit: usize) -> Result<Vec<StoredMessage>> {
        for partition in self.topic.partitions().iter().skip(self.lanes.len()) {
            self.lanes.add(partition.clone(), self.later);
        }
        let collected = collect(&self.name, &mut self.lanes, &mut self.collected, limit).await;
        // Checked after reading, so that a missing file is reported as the deletion of the topic.
        if self.topic.is_deleted() { Err(topic::deleted(&self.name)) } else { collected }
    }
}

/// Takes up to `limit` messages off `lanes`. They gather in `collected`, so that nothing is lost if the caller stops
/// waiting. An error is returned only after the messages before it.
pub(crate) async fn collect(
    topic: &TopicName,
    lanes: &mut Lanes,
    collected: &mut Vec<StoredMessage>,
    limit: usize,
) -> Result<Vec<StoredMessage>> {
    while collected.len() < limit {
        if let Some((partition, record)) = lanes.pop() {
            if record.is_removed() {
                warn_if_lost(topic, partition, &record);
                continue;
            }
            let position = Position { partition, offset: record.offset };
            collected.push(StoredMessage { position, message: record.message(topic) });
            continue;
        }
        match lanes.fill().await {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) if collected.is_empty() => return Err(error),
            Err(_) => break,
        }
    }
    let rest = collected.split_off(limit.min(collected.len()));
    Ok(std::mem::replace(collected, rest))
}

/// Removal by compaction is normal; loss in a repair deserves a warning.
fn warn_if_lost(topic: &TopicName, partition: u32, record: &Record) {
    if record.id().is_none() {
        warn!(%topic, partition, up_to_offset = record.offset, "skipped messages that a repair gave up as lost");
    }
}

pub(crate) fn no_such_topic(topic: &TopicName) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no topic {topic}; publishing its first message creates it"))
}
