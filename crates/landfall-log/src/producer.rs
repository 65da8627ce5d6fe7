//! Idempotent producers: each message has a sequence number, and each number is stored once.

use std::sync::Arc;

use landfall_core::adapter::wire;
use landfall_core::{Error, ErrorCode, ErrorKind, Message, Outcome, ProducerName, Result, Timestamp, TopicName};

use crate::log::Log;
use crate::read::reader::no_such_topic;
use crate::storage::batch;
use crate::storage::batch::Sequenced;
use crate::storage::partition::Partition;
use crate::storage::record;
use crate::write::appender::Part;
use crate::write::producers::{Epoch, ProducerId};

/// A producer whose messages are stored exactly once, however often and however late they are resent.
///
/// It numbers its messages per partition: 0, 1, 2… The numbers continue when the producer registers again, in this
/// process or a later one. A process that crashed before it received the reply resends the same numbers.
///
/// * The next number is stored.
/// * A lower number is a duplicate: the reply is the position it was first stored at. (If retention has removed it
///   since, the reply is the first offset of the partition.)
/// * A higher number waits for the missing ones, or is refused with `SEQUENCE_GAP` and may be retried
///   ([`crate::Options::gaps`]).
/// * Once the name is registered again, the older [`Producer`] is refused permanently with `PRODUCER_FENCED`.
#[derive(Debug, Clone)]
pub struct Producer {
    log: Log,
    id: ProducerId,
    epoch: Epoch,
}

impl Log {
    /// Registers the producer `name` durably: its id stays the same, its epoch increases.
    pub async fn producer(&self, name: &ProducerName) -> Result<Producer> {
        let name = name.clone();
        let (id, epoch) = self.writer().change(move |store| store.register(&name)).await?;
        Ok(Producer { log: self.clone(), id, epoch })
    }
}

impl Producer {
    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn epoch(&self) -> u16 {
        self.epoch
    }

    /// Returns the sequence of its next message in `partition` of `topic`; 0 if it never wrote there.
    pub async fn next_sequence(&self, topic: &TopicName, partition: u32) -> Result<u64> {
        let (partition, id) = (self.partition(topic, partition)?.0, self.id);
        self.log.writer().change(move |store| store.next_sequence(&partition, id)).await
    }

    /// Publishes `batch` with the sequences from `first_sequence`. All messages must belong to `topic`, and their keys
    /// to `partition`. Returns one outcome per message. Apart from duplicates, they are stored together or not at all.
    pub async fn publish(
        &self,
        topic: &TopicName,
        partition: u32,
        first_sequence: u64,
        batch: &[Message],
    ) -> Vec<Outcome> {
        match self.part(topic, partition, first_sequence, batch).await {
            Ok(None) => Vec::new(),
            Ok(Some(part)) => {
                let answer = self.log.writer().append(vec![part]).await;
                (0..batch.len() as u32).map(|index| answer.outcome(0, index, partition)).collect()
            }
            Err(refused) => batch.iter().map(|_| refused.clone()).collect(),
        }
    }

    /// Encodes the batch for the writer; `None` if it is empty. On error, the outcome of every message.
    async fn part(
        &self,
        topic: &TopicName,
        number: u32,
        first: u64,
        messages: &[Message],
    ) -> std::result::Result<Option<Part>, Outcome> {
        let invalid = |sentence: String| Outcome::refuse(ErrorCode::VALIDATION, sentence);
        let refused = |error: Error| match error.kind() {
            ErrorKind::Unavailable => Outcome::retry_later(ErrorCode::UNAVAILABLE, error.to_string()),
            ErrorKind::NotFound => Outcome::refuse(ErrorCode::UNAVAILABLE, error.to_string()),
            _ => invalid(error.to_string()),
        };
        let (partition, count, deduplicate) = self.partition(topic, number).map_err(refused)?;
        let is_stray = |message: &Message| {
            message.topic != *topic || message.key.as_ref().is_some_and(|key| key.partition(count) != number)
        };
        if messages.iter().any(is_stray) {
            // Duplicates from before the topic grew are still recognised, although their keys now map to another
            // partition.
            let next = self.next_sequence(topic, number).await.map_err(refused)?;
            let stray = (first..).zip(messages).find(|(sequence, message)| *sequence >= next && is_stray(message));
            if let Some((_, Message { id, .. })) = stray {
                return Err(invalid(format!("message {id} does not belong to partition {number} of {topic}")));
            }
        }
        let mut buffer = self.log.buffers().take();
        for message in messages {
            record::encode(message, &mut buffer);
        }
        let bytes = buffer.len() - batch::HEADER_BYTES;
        // A single message may be as large as the log accepts.
        let (options, is_alone) = (self.log.options(), messages.len() == 1);
        let limit = if is_alone { options.record_limit() } else { options.batch_limit() };
        if bytes > limit {
            let sentence = match is_alone {
                true => format!("the message has {bytes} encoded bytes; the limit is {limit}"),
                false => {
                    format!("the batch has {bytes} encoded bytes; the limit is {limit}; send it in smaller batches")
                }
            };
            return Err(Outcome::refuse(ErrorCode::TOO_LARGE, sentence));
        }
        if first.checked_add(messages.len() as u64).is_none() {
            return Err(invalid(format!("{} sequences from {first} exceed the range of 64 bits", messages.len())));
        }
        let sequenced = Some(Sequenced { producer: self.id, epoch: self.epoch, first });
        let (ids, appended_at) = (messages.iter().map(wire::broker_id).collect(), Timestamp::now().as_millis());
        Ok((!messages.is_empty()).then_some(Part { partition, buffer, ids, deduplicate, appended_at, sequenced }))
    }

    /// Returns the partition, the topic's partition count, and whether the topic deduplicates by id.
    fn partition(&self, topic: &TopicName, number: u32) -> Result<(Arc<Partition>, u32, bool)> {
        let layout = self.log.topics().get(topic).ok_or_else(|| no_such_topic(topic))?.layout();
        let count = layout.partitions().len() as u32;
        let partition = layout.partitions().get(number as usize);
        let partition = partition.ok_or_else(|| {
            Error::invalid(format!("topic {topic} has no partition {number}; its partitions are 0 to {}", count - 1))
        })?;
        Ok((Arc::clone(partition), count, layout.deduplicates()))
    }
}
