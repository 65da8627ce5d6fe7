//! Publishing: one call of a script per shard appends a batch in order, and all shards of a batch share a round trip.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use landfall_broker_toolkit::{KeySequencer, Pipelining};
use landfall_core::adapter::wire::broker_id;
use landfall_core::{ErrorCode, Message, Outcome, Position, Publisher, TopicName};
use redis::{Cmd, ServerError, Value};

use crate::config::Options;
use crate::entry::EntryId;
use crate::error::{self, Cause};
use crate::link::Link;
use crate::names::{Keys, shard_of};
use crate::script::{self, APPEND};
use crate::topics::Topics;
use crate::wire;

/// Limits of one call of the script: Redis does nothing else while it runs, and Lua passes on only so many arguments.
const MAX_MESSAGES: usize = 1_000;
const MAX_BYTES: usize = 4 * 1024 * 1024;
const MAX_HEADERS: usize = 3_000;
/// The size of a message with its usual headers, without its payload.
const USUAL_ARGUMENTS: usize = 24;
const USUAL_BYTES: usize = 400;
/// How often in a row Redis may answer that it does not know the script or the topic.
const MAX_ATTEMPTS: u32 = 3;

#[derive(Debug)]
pub(crate) struct RedisPublisher {
    pub(crate) options: Arc<Options>,
    pub(crate) link: Arc<Link>,
    pub(crate) topics: Arc<Topics>,
    /// Redis closes a connection that sends more.
    pub(crate) payload_bytes: usize,
}

/// The keys of every shard, by topic.
type Shards<'a> = HashMap<&'a TopicName, Arc<[Keys]>>;

/// One call of the script: messages of one shard.
#[derive(Default)]
struct Call {
    indexes: Vec<usize>,
    bytes: usize,
    is_full: bool,
}

impl Call {
    /// Whether the message fits; after the first that does not, nothing more is added.
    fn has_room_for(&mut self, message: &Message, count: usize) -> bool {
        let bytes = self.bytes + message.payload.len();
        self.is_full |= count == MAX_MESSAGES || (bytes > MAX_BYTES && count > 0);
        if !self.is_full {
            self.bytes = bytes;
        }
        !self.is_full
    }
}

impl RedisPublisher {
    /// Finds the shards of every topic of the unsent messages, and refuses messages that cannot be sent.
    async fn prepare<'a>(&self, sequencer: &mut KeySequencer<'a>) -> Shards<'a> {
        let (mut shards, mut missing) = (Shards::new(), HashMap::new());
        sequencer.refuse_unsent(|message| self.refuse(message));
        let topics: HashSet<&'a TopicName> = sequencer.unsent().map(|message| &message.topic).collect();
        for topic in topics {
            match self.topics.shards(&self.link, topic).await {
                Ok(found) => drop(shards.insert(topic, found)),
                Err(why) => drop(missing.insert(topic, why.outcome(topic))),
            }
        }
        sequencer.refuse_unsent(|message| missing.get(&message.topic).cloned());
        shards
    }

    /// Refuses a message that Redis never accepts.
    fn refuse(&self, message: &Message) -> Option<Outcome> {
        let (bytes, limit) = (message.payload.len(), self.payload_bytes);
        let reason = match message.headers.iter().count() {
            _ if bytes > limit => {
                format!("the payload is {bytes} bytes, and Redis accepts {limit} (proto-max-bulk-len)")
            }
            count if count > MAX_HEADERS => {
                format!("the message has {count} headers, and {MAX_HEADERS} are possible")
            }
            _ => return None,
        };
        Some(Outcome::refuse(ErrorCode::TOO_LARGE, reason))
    }

    /// Hands out the next call of every shard.
    fn next_calls<'a>(sequencer: &mut KeySequencer<'a>, shards: &Shards<'a>) -> BTreeMap<(&'a TopicName, u32), Call> {
        let mut calls: BTreeMap<(&'a TopicName, u32), (Call, usize)> = BTreeMap::new();
        let mut destinations = Vec::new();
        let taken = sequencer.take_ready(|message| {
            let Some(count) = shards.get(&message.topic).map(|shards| shards.len() as u32) else { return false };
            let shard = match &message.key {
                Some(key) => shard_of(key.as_str().as_bytes(), count),
                // By its id, so that a duplicate reaches the shard that remembers the original.
                None => shard_of(broker_id(message).as_bytes(), count),
            };
            let (call, admitted) = calls.entry((&message.topic, shard)).or_default();
            let is_admitted = call.has_room_for(message, *admitted);
            if is_admitted {
                *admitted += 1;
                destinations.push((&message.topic, shard));
            }
            is_admitted
        });
        for (index, destination) in taken.into_iter().zip(destinations) {
            if let Some((call, _)) = calls.get_mut(&destination) {
                call.indexes.push(index);
            }
        }
        calls.into_iter().map(|(destination, (call, _))| (destination, call)).collect()
    }

    fn append(&self, sequencer: &KeySequencer<'_>, shards: &[Keys], shard: u32, call: &Call) -> Cmd {
        let count = call.indexes.len();
        let room = (count * USUAL_ARGUMENTS, call.bytes + count * USUAL_BYTES);
        let Keys { stream, hash, recent, older } = &shards[shard as usize];
        let mut command = script::call_with_capacity(&APPEND, &[stream, hash, recent, older], room);
        command.arg(shards.len()).arg(millis(self.options.dedup)).arg(count);
        for message in call.indexes.iter().map(|index| sequencer.message(*index)) {
            let headers = wire::headers(message, &self.options.source);
            command.arg(broker_id(message).as_bytes()).arg(2 * headers.len() + 2);
            for (name, value) in &headers {
                command.arg(name).arg(value);
            }
            command.arg(wire::DATA).arg(&message.payload[..]);
        }
        command
    }

    /// Sends the next call of every shard together, and settles what was answered. Puts back the messages of calls that
    /// must be repeated.
    async fn round<'a>(&self, sequencer: &mut KeySequencer<'a>, shards: &Shards<'a>) -> Round {
        let calls = Self::next_calls(sequencer, shards);
        let mut pipeline = redis::pipe();
        for ((topic, shard), call) in &calls {
            pipeline.add_command(self.append(sequencer, &shards[topic], *shard, call));
        }
        if calls.is_empty() {
            return Round::Done;
        }
        if self.options.replicas > 0 {
            // A little less than the timeout of the response, so that Redis answers before that.
            let wait = self.options.timeout.mul_f64(0.8);
            pipeline.cmd("WAIT").arg(self.options.replicas).arg(millis(wait).max(1));
        }
        let mut answers = match self.link.ask(&pipeline).await {
            Ok(answers) => answers,
            Err(failed) => {
                sequencer.settle_in_flight(&error::call_outcome(&failed));
                return Round::ConnectionLost;
            }
        };
        let copies = match self.options.replicas {
            0 => Ok(()),
            wanted => enough_copies(answers.pop(), wanted),
        };
        let mut repeated = Vec::new();
        for (((topic, shard), call), answer) in calls.into_iter().zip(answers) {
            match answer {
                Value::ServerError(error) if is_worth_repeating(&error) => {
                    self.topics.forget(topic);
                    repeated.extend(call.indexes);
                }
                Value::ServerError(error) => {
                    let outcome = error::outcome(&error);
                    call.indexes.into_iter().for_each(|index| sequencer.settle(index, outcome.clone()));
                }
                answer => settle_answer(sequencer, shard, call.indexes, answer, &copies),
            }
        }
        if repeated.is_empty() {
            return Round::Sent;
        }
        repeated.sort_unstable();
        repeated.into_iter().rev().for_each(|index| sequencer.put_back(index));
        Round::Repeat
    }

    /// Sends everything. A call is repeated if the topic was recreated or Redis has lost the script: none of its
    /// messages was stored then.
    async fn send(&self, sequencer: &mut KeySequencer<'_>) {
        for _ in 0..MAX_ATTEMPTS {
            let shards = self.prepare(sequencer).await;
            loop {
                match self.round(sequencer, &shards).await {
                    Round::Sent => {}
                    Round::Done | Round::ConnectionLost => return,
                    Round::Repeat => break,
                }
            }
        }
    }
}

/// How sending one call of every shard ended.
enum Round {
    Sent,
    /// Nothing was left to send.
    Done,
    ConnectionLost,
    /// Redis did not know the script or the topic.
    Repeat,
}

fn is_worth_repeating(error: &ServerError) -> bool {
    matches!(error::cause(error), Cause::StaleTopic | Cause::NoScript)
}

/// Whether enough replicas have what was written; if not, the outcome of the messages.
fn enough_copies(answer: Option<Value>, wanted: u32) -> Result<(), Outcome> {
    match answer {
        Some(Value::Int(copies)) if copies >= i64::from(wanted) => Ok(()),
        Some(Value::Int(copies)) => {
            Err(Outcome::Unknown(format!("{copies} replicas have it, and {wanted} were asked for")))
        }
        other => Err(Outcome::Unknown(format!("Redis does not say how many replicas have it: {other:?}"))),
    }
}

fn settle_answer(
    sequencer: &mut KeySequencer<'_>,
    shard: u32,
    indexes: Vec<usize>,
    answer: Value,
    copies: &Result<(), Outcome>,
) {
    let ids = match &answer {
        Value::Array(ids) => &ids[..],
        _ => &[],
    };
    let mut ids = ids.iter();
    for index in indexes {
        let outcome = match (ids.next().and_then(EntryId::from_value), copies) {
            (Some(id), Ok(())) => Outcome::Accepted(Position { partition: shard, offset: id.offset() }),
            (Some(_), Err(outcome)) => outcome.clone(),
            (None, _) => Outcome::Unknown("Redis did not answer with the id of the message".into()),
        };
        sequencer.settle(index, outcome);
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[async_trait]
impl Publisher for RedisPublisher {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        let mut sequencer = KeySequencer::new(batch, Pipelining::InOrder);
        self.send(&mut sequencer).await;
        let reason = "Redis was lost, or the topic changed, before it was sent";
        sequencer.give_up_unsent(&Outcome::retry_later(ErrorCode::UNAVAILABLE, reason));
        sequencer.into_outcomes()
    }
}
