//! Reads a topic without joining a group.

use std::sync::Arc;

use async_trait::async_trait;
use landfall_core::{Error, ErrorKind, Position, Result, StartAt, StoredMessage, TopicName, TopicReader};

use crate::cursor::Extents;
use crate::lanes::Lanes;
use crate::read_only::blocking;
use crate::seek;
use crate::topic::Topic;

/// A reader of a topic in an open log: it sees what was synced.
pub(crate) struct LogReader {
    topic: TopicName,
    lanes: Lanes,
    collected: Vec<StoredMessage>,
}

impl LogReader {
    pub(crate) async fn open(name: TopicName, topic: &Topic, from: StartAt) -> Result<Self> {
        let partitions = topic.partitions().to_vec();
        blocking(move || {
            let mut lanes = Lanes::default();
            for partition in partitions {
                let extents: Arc<dyn Extents> = partition;
                let offset = seek::offset(&extents, from)?;
                lanes.add(extents, offset);
            }
            Ok(Self { topic: name, lanes, collected: Vec::new() })
        })
        .await
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

pub(crate) fn no_such_topic(topic: &TopicName) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!("there is no topic {topic}; a topic comes into being with its first message"),
    )
}
