//! Reads a topic without joining a group.

use async_trait::async_trait;
use landfall_core::{Error, ErrorKind, Position, Result, StartAt, StoredMessage, TopicName, TopicReader};

use tracing::warn;

use crate::lanes::Lanes;
use crate::record::Record;
use crate::topic::Topic;

/// A reader of a topic in an open log: it sees what was synced.
pub(crate) struct LogReader {
    topic: TopicName,
    lanes: Lanes,
    collected: Vec<StoredMessage>,
}

impl LogReader {
    pub(crate) fn new(name: TopicName, topic: &Topic, from: StartAt) -> Self {
        let mut lanes = Lanes::default();
        for partition in topic.partitions() {
            let from = match from {
                StartAt::Beginning => 0,
                StartAt::Offset(offset) => offset,
                StartAt::End => partition.next_offset(),
            };
            lanes.add(partition.clone(), from);
        }
        Self { topic: name, lanes, collected: Vec::new() }
    }
}

#[async_trait]
impl TopicReader for LogReader {
    async fn read(&mut self, limit: usize) -> Result<Vec<StoredMessage>> {
        collect(&self.topic, &mut self.lanes, &mut self.collected, limit).await
    }
}

/// Takes up to `limit` messages off `lanes`. They gather in `collected`, so that nothing is lost if the caller stops
/// waiting; an error is kept back until what came before it was returned.
pub(crate) async fn collect(
    topic: &TopicName,
    lanes: &mut Lanes,
    collected: &mut Vec<StoredMessage>,
    limit: usize,
) -> Result<Vec<StoredMessage>> {
    while collected.len() < limit {
        if let Some((partition, record)) = lanes.pop() {
            if record.is_removed() {
                pass_over(topic, partition, &record);
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

/// What compaction removed is nobody's concern; that something was lost is.
fn pass_over(topic: &TopicName, partition: u32, record: &Record) {
    if record.id().is_none() {
        warn!(%topic, partition, up_to_offset = record.offset, "passed over messages that a repair gave up as lost");
    }
}

pub(crate) fn no_such_topic(topic: &TopicName) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!("there is no topic {topic}; a topic comes into being with its first message"),
    )
}
