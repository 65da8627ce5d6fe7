//! An idempotent producer: it numbers its messages, and each number is stored once.

use std::sync::Arc;

use landfall_core::{Error, ErrorCode, ErrorKind, Message, Outcome, ProducerName, Result, Timestamp, TopicName, wire};

use crate::log::Log;
use crate::read::reader::no_such_topic;
use crate::storage::batch;
use crate::storage::batch::Sequenced;
use crate::storage::partition::Partition;
use crate::storage::record;
use crate::write::appender::Part;
use crate::write::producers::{Epoch, ProducerId};

/// A producer whose messages are stored once each, however often they are sent and however long ago that was.
///
/// It numbers the messages of each partition: 0, 1, 2… The numbers go on when the producer is registered again, by this
/// process or a later one, so that whoever crashed between sending and hearing the answer sends the same numbers again.
///
/// * The next number is stored.
/// * A lower one was stored before: it is answered with the place that it got then, and not stored again. (If retention
///   has removed it since, the answer is where the partition begins now.)
/// * A higher one waits for those between, or is refused with `SEQUENCE_GAP` and may be sent again
///   ([`crate::Options::gaps`]).
/// * Once the name is registered again, the older [`Producer`] is refused with `PRODUCER_FENCED`, for good.
#[derive(Debug, Clone)]
pub struct Producer {
    log: Log,
    id: ProducerId,
    epoch: Epoch,
}

impl Log {
    /// Registers the producer called `name`, durably: its id is the same each time, its epoch is higher than before.
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

    /// The number that its next message in `partition` of `topic` must have: 0 if it never wrote there.
    pub async fn next_sequence(&self, topic: &TopicName, partition: u32) -> Result<u64> {
        let (partition, id) = (self.partition(topic, partition)?.0, self.id);
        self.log.writer().change(move |store| store.next_sequence(&partition, id)).await
    }

    /// Publishes `batch`, which are messages of `topic` whose keys belong into `partition`, with the numbers from
    /// `first_sequence` on. One outcome for each; they are stored together or not at all, apart from those that were
    /// stored before.
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

    /// The batch as it goes to the writer, if there is anything in it; otherwise what becomes of each message.
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
            // What was stored before the topic grew is still known here, although its keys go elsewhere now.
            let next = self.next_sequence(topic, number).await.map_err(refused)?;
            let stray = (first..).zip(messages).find(|(sequence, message)| *sequence >= next && is_stray(message));
            if let Some((_, Message { id, .. })) = stray {
                return Err(invalid(format!("message {id} does not belong into partition {number} of {topic}")));
            }
        }
        let mut buffer = self.log.buffers().take();
        for message in messages {
            record::encode(message, &mut buffer);
        }
        let bytes = buffer.len() - batch::HEADER_BYTES;
        // One message alone may be as large as the log takes any.
        let (options, is_alone) = (self.log.options(), messages.len() == 1);
        let limit = if is_alone { options.record_limit() } else { options.batch_limit() };
        if bytes > limit {
            let sentence = match is_alone {
                true => format!("the message takes {bytes} bytes in the log and the limit is {limit}"),
                false => format!("the batch takes {bytes} bytes in the log and the limit is {limit}; send it in parts"),
            };
            return Err(Outcome::refuse(ErrorCode::TOO_LARGE, sentence));
        }
        if first.checked_add(messages.len() as u64).is_none() {
            return Err(invalid(format!("there are no {} numbers from {first} on", messages.len())));
        }
        let sequenced = Some(Sequenced { producer: self.id, epoch: self.epoch, first });
        let (ids, taken) = (messages.iter().map(wire::broker_id).collect(), Timestamp::now().as_millis());
        Ok((!messages.is_empty()).then_some(Part { partition, buffer, ids, deduplicate, taken, sequenced }))
    }

    /// The partition, how many the topic has, and whether it knows its messages by their ids.
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
