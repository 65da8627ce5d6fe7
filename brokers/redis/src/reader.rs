//! Reads a topic without a group.

use std::sync::Arc;

use async_trait::async_trait;
use landfall_core::{Error, ErrorKind, Position, Result, StartAt, StoredMessage, TopicName, TopicReader};
use redis::Value;

use crate::broker::Redis;
use crate::entry::{Entry, EntryId};
use crate::error;
use crate::link::Link;
use crate::topics::{self, number};
use crate::wire;

#[derive(Debug)]
pub(crate) struct RedisReader {
    link: Arc<Link>,
    topic: TopicName,
    /// Each stream and its next id.
    cursors: Vec<(String, EntryId)>,
    /// The shard with which the next read begins. It rotates, so that a busy shard does not starve the others.
    first_shard: usize,
}

impl RedisReader {
    pub(crate) async fn open(redis: &Redis, topic: &TopicName, from: StartAt) -> Result<Self> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("HGET").arg(redis.names.topics()).arg(topic.as_str());
        let answers = topics::ask(&redis.link, &pipeline).await.map_err(|error| error.into_error(topic))?;
        let shards: u32 = answers
            .first()
            .and_then(number)
            .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("topic {topic} does not exist")))?;
        let mut cursors = Vec::with_capacity(shards as usize);
        for shard in 0..shards {
            let stream = redis.names.stream(topic, shard);
            let next = match from {
                StartAt::Beginning => EntryId::ZERO,
                StartAt::Offset(offset) => EntryId::from_offset(offset),
                StartAt::End => after(last(&redis.link, &stream).await?),
                StartAt::Time(time) => match last(&redis.link, &stream).await? {
                    last if last < EntryId::at(time) => after(last),
                    _ => EntryId::at(time),
                },
            };
            cursors.push((stream, next));
        }
        Ok(Self { link: Arc::clone(&redis.link), topic: topic.clone(), cursors, first_shard: 0 })
    }
}

/// Returns the id of the last entry that `stream` ever had, or zero if it had none.
async fn last(link: &Link, stream: &str) -> Result<EntryId> {
    let mut pipeline = redis::pipe();
    pipeline.cmd("XINFO").arg("STREAM").arg(stream);
    let answers = link.ask(&pipeline).await.map_err(error::call_error)?;
    match answers.into_iter().next() {
        Some(Value::ServerError(error)) if error.details().is_some_and(|text| text.starts_with("no such key")) => {
            Ok(EntryId::ZERO)
        }
        Some(Value::ServerError(error)) => Err(error::server_error(&error)),
        Some(Value::Array(parts)) => {
            let is_name = |part: &Value| matches!(part, Value::BulkString(name) if name == b"last-generated-id");
            let pair = parts.chunks_exact(2).find(|pair| is_name(&pair[0]));
            Ok(pair.and_then(|pair| EntryId::from_value(&pair[1])).unwrap_or_default())
        }
        _ => Ok(EntryId::ZERO),
    }
}

fn after(id: EntryId) -> EntryId {
    EntryId { sequence: id.sequence.saturating_add(1), ..id }
}

#[async_trait]
impl TopicReader for RedisReader {
    async fn read(&mut self, limit: usize) -> Result<Vec<StoredMessage>> {
        let mut stored = Vec::new();
        let mut cursors = self.cursors.clone();
        for step in 0..cursors.len() {
            let shard = (self.first_shard + step) % cursors.len();
            let room = limit - stored.len();
            if room == 0 {
                break;
            }
            let (stream, next) = &mut cursors[shard];
            let mut pipeline = redis::pipe();
            pipeline.cmd("XRANGE").arg(&*stream).arg(next.to_string()).arg("+").arg("COUNT").arg(room);
            let answers = topics::ask(&self.link, &pipeline).await.map_err(|error| error.into_error(&self.topic))?;
            for entry in answers.into_iter().next().map(Entry::list).unwrap_or_default() {
                *next = after(entry.id);
                let position = Position { partition: shard as u32, offset: entry.id.offset() };
                stored.push(StoredMessage { position, message: wire::message(&self.topic, &entry) });
            }
        }
        // Cancellation safety: the cursors advance only after all reads.
        self.cursors = cursors;
        self.first_shard = self.first_shard.wrapping_add(1);
        Ok(stored)
    }
}
