//! From a batch of messages to encoded records per partition, and from places back to one outcome per message.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use landfall_core::{ErrorCode, Key, Message, Outcome, Position, Timestamp, TopicName, wire};

use crate::options::Options;
use crate::storage::record;
use crate::topic::open::Layout;
use crate::write::appender::Part;
use crate::write::buffers::Buffers;
use crate::write::store::Placed;
use crate::write::writer::Answer;

/// A topic of the batch: open, or the outcome for each of its messages.
pub(crate) type Destination = Result<Layout, Outcome>;

/// A batch on its way to the writer.
pub(crate) struct Plan<'a> {
    buffers: &'a Buffers,
    options: &'a Options,
    taken: i64,
    parts: Vec<Part>,
    /// The part that is being filled, by the partition's id. There are few, and each message asks.
    filling: BTreeMap<u64, usize>,
    places: Vec<Place>,
}

/// Where a message of the batch is.
enum Place {
    Record { part: usize, index: u32, partition: u32 },
    Nowhere(Outcome),
}

impl<'a> Plan<'a> {
    /// Encodes `batch`. Of one topic and key nothing follows a message that was refused.
    pub(crate) fn new(
        batch: &[Message],
        destinations: &HashMap<&TopicName, Destination>,
        options: &'a Options,
        buffers: &'a Buffers,
    ) -> Self {
        let (taken, places) = (Timestamp::now().as_millis(), Vec::with_capacity(batch.len()));
        let mut plan = Self { buffers, options, taken, parts: Vec::new(), filling: BTreeMap::new(), places };
        let mut keyless: HashMap<&TopicName, u32> = HashMap::new();
        let mut held: HashSet<(&TopicName, &Key)> = HashSet::new();
        let mut latest: Option<(&TopicName, Option<&Destination>)> = None;
        for message in batch {
            let lane = message.key.as_ref().map(|key| (&message.topic, key));
            // Mostly all messages are of one topic.
            let (_, destination) = match latest {
                Some(latest) if *latest.0 == message.topic => latest,
                _ => *latest.insert((&message.topic, destinations.get(&message.topic))),
            };
            let placed = match destination {
                _ if !held.is_empty() && lane.is_some_and(|lane| held.contains(&lane)) => {
                    Err(Outcome::behind_predecessor())
                }
                None => Err(Outcome::retry_later(ErrorCode::UNAVAILABLE, "the topic is not open")),
                Some(Err(outcome)) => Err(outcome.clone()),
                Some(Ok(topic)) => {
                    let partition = match &message.key {
                        Some(key) => key.partition(topic.partitions().len() as u32),
                        None => *keyless.entry(&message.topic).or_insert_with(|| topic.next_turn()),
                    };
                    plan.encode(message, topic, partition)
                }
            };
            plan.places.push(placed.unwrap_or_else(|outcome| {
                held.extend(lane);
                Place::Nowhere(outcome)
            }));
        }
        plan
    }

    /// What the writer has to write; taken out once.
    pub(crate) fn take_parts(&mut self) -> Vec<Part> {
        std::mem::take(&mut self.parts)
    }

    /// One outcome per message of the batch, in its order.
    pub(crate) fn outcomes(self, answer: &Answer) -> Vec<Outcome> {
        let outcome = |place| match place {
            Place::Nowhere(outcome) => outcome,
            Place::Record { part, index, partition } => answer.outcome(part, index, partition),
        };
        self.places.into_iter().map(outcome).collect()
    }

    fn encode(&mut self, message: &Message, topic: &Layout, number: u32) -> Result<Place, Outcome> {
        let (bytes, limit) = (record::encoded_bytes(message), self.options.record_limit());
        if bytes > limit {
            let sentence = format!("the message takes {bytes} bytes in the log and the limit is {limit}");
            return Err(Outcome::refuse(ErrorCode::TOO_LARGE, sentence));
        }
        let part = self.part_with_room(topic, number, bytes);
        let filling = &mut self.parts[part];
        let index = filling.count();
        record::encode(message, &mut filling.buffer);
        filling.ids.push(wire::broker_id(message));
        Ok(Place::Record { part, index, partition: number })
    }

    /// The part of partition `number` that is being filled, or a new one if `bytes` more would make it too large.
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
            taken: self.taken,
            sequenced: None,
        });
        self.filling.insert(partition.id(), part);
        part
    }
}

impl Answer {
    /// What became of record number `index` of part number `part`, which was for `partition`.
    pub(crate) fn outcome(&self, part: usize, index: u32, partition: u32) -> Outcome {
        match self {
            Answer::Placed(placed) => match placed.get(part) {
                Some(placed) => placed.outcome(index, partition),
                None => Outcome::Unknown("the log's writer did not answer for this message".into()),
            },
            Answer::Refused(why) => Outcome::retry_later(ErrorCode::UNAVAILABLE, why.clone()),
            Answer::Unknown(why) => Outcome::Unknown(why.clone()),
        }
    }
}

impl Placed {
    /// What became of record number `index` of a part for `partition`.
    fn outcome(&self, index: u32, partition: u32) -> Outcome {
        match self {
            Placed::From(base) => Outcome::Accepted(Position { partition, offset: base + u64::from(index) }),
            Placed::Each(positions) => match positions.get(index as usize) {
                Some(position) => Outcome::Accepted(*position),
                None => Outcome::Unknown("the log's writer did not answer for this message".into()),
            },
            Placed::Refused(refusal) => Outcome::Refused(refusal.clone()),
            Placed::Early(expected) => Outcome::retry_later(
                ErrorCode::SEQUENCE_GAP,
                format!("the message with sequence {expected} comes first and has not arrived"),
            ),
        }
    }
}
