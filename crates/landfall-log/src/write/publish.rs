//! Splits a batch into encoded records per partition, and maps the replies back to one outcome per message.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use landfall_core::adapter::wire;
use landfall_core::{ErrorCode, Key, Message, Outcome, Position, Timestamp, TopicName};

use crate::options::Options;
use crate::storage::record;
use crate::topic::open::Layout;
use crate::write::appender::Part;
use crate::write::buffer_pool::BufferPool;
use crate::write::store::PartResult;
use crate::write::writer::AppendReply;

/// A topic of the batch: open, or the outcome for each of its messages.
pub(crate) type Destination = Result<Layout, Outcome>;

/// A batch on its way to the writer.
pub(crate) struct Plan<'a> {
    buffers: &'a BufferPool,
    options: &'a Options,
    appended_at: i64,
    parts: Vec<Part>,
    /// The part that is being filled, by partition id. Looked up for every message, and small.
    filling: BTreeMap<u64, usize>,
    messages: Vec<PlannedMessage>,
}

/// What became of a message in the plan.
enum PlannedMessage {
    Record { part: usize, index: u32, partition: u32 },
    Refused(Outcome),
}

impl<'a> Plan<'a> {
    /// Encodes `batch`. After a refused message, all later messages of the same topic and key are refused too.
    pub(crate) fn new(
        batch: &[Message],
        destinations: &HashMap<&TopicName, Destination>,
        options: &'a Options,
        buffers: &'a BufferPool,
    ) -> Self {
        let (appended_at, messages) = (Timestamp::now().as_millis(), Vec::with_capacity(batch.len()));
        let mut plan = Self { buffers, options, appended_at, parts: Vec::new(), filling: BTreeMap::new(), messages };
        let mut keyless: HashMap<&TopicName, u32> = HashMap::new();
        let mut refused_lanes: HashSet<(&TopicName, &Key)> = HashSet::new();
        let mut latest: Option<(&TopicName, Option<&Destination>)> = None;
        for message in batch {
            let lane = message.key.as_ref().map(|key| (&message.topic, key));
            // A batch mostly holds messages of one topic.
            let (_, destination) = match latest {
                Some(latest) if *latest.0 == message.topic => latest,
                _ => *latest.insert((&message.topic, destinations.get(&message.topic))),
            };
            let planned = match destination {
                _ if !refused_lanes.is_empty() && lane.is_some_and(|lane| refused_lanes.contains(&lane)) => {
                    Err(Outcome::behind_predecessor())
                }
                None => Err(Outcome::retry_later(ErrorCode::UNAVAILABLE, "the topic is not open")),
                Some(Err(outcome)) => Err(outcome.clone()),
                Some(Ok(topic)) => {
                    let partition = match &message.key {
                        Some(key) => key.partition(topic.partitions().len() as u32),
                        None => *keyless.entry(&message.topic).or_insert_with(|| topic.next_round_robin()),
                    };
                    plan.encode(message, topic, partition)
                }
            };
            plan.messages.push(planned.unwrap_or_else(|outcome| {
                refused_lanes.extend(lane);
                PlannedMessage::Refused(outcome)
            }));
        }
        plan
    }

    /// Takes the parts for the writer; empty the second time.
    pub(crate) fn take_parts(&mut self) -> Vec<Part> {
        std::mem::take(&mut self.parts)
    }

    /// Returns one outcome per message of the batch, in order.
    pub(crate) fn outcomes(self, answer: &AppendReply) -> Vec<Outcome> {
        let outcome = |planned| match planned {
            PlannedMessage::Refused(outcome) => outcome,
            PlannedMessage::Record { part, index, partition } => answer.outcome(part, index, partition),
        };
        self.messages.into_iter().map(outcome).collect()
    }

    fn encode(&mut self, message: &Message, topic: &Layout, number: u32) -> Result<PlannedMessage, Outcome> {
        let (bytes, limit) = (record::encoded_bytes(message), self.options.record_limit());
        if bytes > limit {
            let sentence = format!("the message has {bytes} encoded bytes; the limit is {limit}");
            return Err(Outcome::refuse(ErrorCode::TOO_LARGE, sentence));
        }
        let part = self.part_with_room(topic, number, bytes);
        let filling = &mut self.parts[part];
        let index = filling.count();
        record::encode(message, &mut filling.buffer);
        filling.ids.push(wire::broker_id(message));
        Ok(PlannedMessage::Record { part, index, partition: number })
    }

    /// Returns the part of partition `number` that is being filled, or a new one if `bytes` more would exceed the
    /// limit.
    fn part_with_room(&mut self, topic: &Layout, number: u32, bytes: usize) -> usize {
        let partition = &topic.partitions()[number as usize];
        if let Some(&part) = self.filling.get(&partition.id())
            && self.parts[part].buffer.len() + bytes <= self.options.batch_limit()
        {
            return part;
        }
        let part = self.parts.len();
        self.parts.push(Part {
            partition: Arc::clone(partition),
            buffer: self.buffers.take(),
            ids: Vec::new(),
            deduplicate: topic.deduplicates(),
            appended_at: self.appended_at,
            sequenced: None,
        });
        self.filling.insert(partition.id(), part);
        part
    }
}

impl AppendReply {
    /// Returns the outcome of record `index` of part `part`, which was for `partition`.
    pub(crate) fn outcome(&self, part: usize, index: u32, partition: u32) -> Outcome {
        match self {
            AppendReply::Completed(results) => match results.get(part) {
                Some(result) => result.outcome(index, partition),
                None => Outcome::Unknown("the log's writer did not reply for this message".into()),
            },
            AppendReply::Refused(why) => Outcome::retry_later(ErrorCode::UNAVAILABLE, why.clone()),
            AppendReply::Unknown(why) => Outcome::Unknown(why.clone()),
        }
    }
}

impl PartResult {
    /// Returns the outcome of record `index` of a part for `partition`.
    fn outcome(&self, index: u32, partition: u32) -> Outcome {
        match self {
            PartResult::Appended(base) => Outcome::Accepted(Position { partition, offset: base + u64::from(index) }),
            PartResult::Positions(positions) => match positions.get(index as usize) {
                Some(position) => Outcome::Accepted(*position),
                None => Outcome::Unknown("the log's writer did not reply for this message".into()),
            },
            PartResult::Refused(refusal) => Outcome::Refused(refusal.clone()),
            PartResult::Gap(expected) => Outcome::retry_later(
                ErrorCode::SEQUENCE_GAP,
                format!("the message with sequence {expected} comes first and has not arrived"),
            ),
        }
    }
}
