//! Publishing: per shard one call of a script that appends in order, all shards of a batch in one go.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{ErrorCode, Key, Message, Outcome, Position, Publisher, TopicName, wire::broker_id};
use redis::{Cmd, ServerError, Value};

use crate::config::Options;
use crate::entry::EntryId;
use crate::error::{self, Cause};
use crate::link::Link;
use crate::names::{Keys, shard_of};
use crate::script::{self, APPEND};
use crate::topics::Topics;
use crate::wire;

/// What one call of the script takes: Redis does nothing else while it runs, and Lua passes on only so many arguments.
const MOST_MESSAGES: usize = 1_000;
const MOST_BYTES: usize = 4 * 1024 * 1024;
const MOST_HEADERS: usize = 3_000;
/// What a message comes to with its usual headers, beside its payload.
const USUAL_ARGUMENTS: usize = 24;
const USUAL_BYTES: usize = 400;
/// How often in a row Redis may say that it does not know the script or the topic.
const MOST_REPEATS: u32 = 3;

#[derive(Debug)]
pub(crate) struct RedisPublisher {
    pub(crate) options: Arc<Options>,
    pub(crate) link: Arc<Link>,
    pub(crate) topics: Arc<Topics>,
    /// Redis closes the connection on whoever sends more.
    pub(crate) payload_bytes: usize,
}

/// The messages of one shard that were not sent yet, by their place in the batch.
struct Lane<'a> {
    topic: &'a TopicName,
    shard: u32,
    shards: Arc<[Keys]>,
    waiting: VecDeque<usize>,
}

/// A batch on its way.
struct Batch<'a> {
    messages: &'a [Message],
    outcomes: Vec<Option<Outcome>>,
    /// Something of these was not accepted, so nothing later is sent.
    held: HashSet<(&'a TopicName, &'a Key)>,
}

impl<'a> Batch<'a> {
    fn settle(&mut self, place: usize, outcome: Outcome) {
        let message = &self.messages[place];
        if !outcome.is_accepted()
            && let Some(key) = &message.key
        {
            self.held.insert((&message.topic, key));
        }
        self.outcomes[place] = Some(outcome);
    }

    fn is_held(&self, place: usize) -> bool {
        let message: &'a Message = &self.messages[place];
        message.key.as_ref().is_some_and(|key| self.held.contains(&(&message.topic, key)))
    }
}

impl RedisPublisher {
    /// Sorts the messages without an outcome by shard. What can be known to fail gets its outcome here.
    async fn sort<'a>(&self, batch: &mut Batch<'a>) -> Vec<Lane<'a>> {
        let mut lanes: BTreeMap<(&'a TopicName, u32), Lane<'a>> = BTreeMap::new();
        let mut missing: HashMap<&'a TopicName, Outcome> = HashMap::new();
        let messages: &'a [Message] = batch.messages;
        for (place, message) in messages.iter().enumerate() {
            if batch.outcomes[place].is_some() {
                continue;
            }
            if batch.is_held(place) {
                batch.settle(place, Outcome::behind_predecessor());
                continue;
            }
            if let Some(refused) = self.refuse(message) {
                batch.settle(place, refused);
                continue;
            }
            // A topic that cannot be had is asked for once.
            if let Some(outcome) = missing.get(&message.topic) {
                batch.settle(place, outcome.clone());
                continue;
            }
            let shards = match self.topics.shards(&self.link, &message.topic).await {
                Ok(shards) => shards,
                Err(why) => {
                    let outcome = why.outcome(&message.topic);
                    missing.insert(&message.topic, outcome.clone());
                    batch.settle(place, outcome);
                    continue;
                }
            };
            let count = shards.len() as u32;
            let shard = match &message.key {
                Some(key) => shard_of(key.as_str().as_bytes(), count),
                // By its id, so that a copy comes to where the original is known.
                None => shard_of(broker_id(message).as_bytes(), count),
            };
            let lane = lanes.entry((&message.topic, shard));
            let lane = lane.or_insert_with(|| Lane { topic: &message.topic, shard, shards, waiting: VecDeque::new() });
            lane.waiting.push_back(place);
        }
        lanes.into_values().collect()
    }

    /// What Redis would not take however often it is sent.
    fn refuse(&self, message: &Message) -> Option<Outcome> {
        let (bytes, limit) = (message.payload.len(), self.payload_bytes);
        let reason = match message.headers.iter().count() {
            _ if bytes > limit => format!("the payload is {bytes} bytes, and Redis takes {limit} (proto-max-bulk-len)"),
            count if count > MOST_HEADERS => {
                format!("the message has {count} headers, and {MOST_HEADERS} are possible")
            }
            _ => return None,
        };
        Some(Outcome::refuse(ErrorCode::TOO_LARGE, reason))
    }

    /// The next messages of `lane` that fit into one call; those whose key is held are settled on the way.
    fn take(batch: &mut Batch<'_>, lane: &mut Lane<'_>) -> Vec<usize> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while let Some(place) = lane.waiting.front().copied() {
            if batch.is_held(place) {
                batch.settle(place, Outcome::behind_predecessor());
            } else {
                bytes += batch.messages[place].payload.len();
                if taken.len() == MOST_MESSAGES || (bytes > MOST_BYTES && !taken.is_empty()) {
                    break;
                }
                taken.push(place);
            }
            lane.waiting.pop_front();
        }
        taken
    }

    fn append(&self, batch: &Batch<'_>, lane: &Lane<'_>, taken: &[usize]) -> Cmd {
        let messages = || taken.iter().map(|place| &batch.messages[*place]);
        let payloads: usize = messages().map(|message| message.payload.len()).sum();
        let room = (taken.len() * USUAL_ARGUMENTS, payloads + taken.len() * USUAL_BYTES);
        let Keys { stream, hash, recent, older } = &lane.shards[lane.shard as usize];
        let mut call = script::call_with_capacity(&APPEND, &[stream, hash, recent, older], room);
        call.arg(lane.shards.len()).arg(millis(self.options.dedup)).arg(taken.len());
        for message in messages() {
            let headers = wire::headers(message, &self.options.source);
            call.arg(broker_id(message).as_bytes()).arg(2 * headers.len() + 2);
            for (name, value) in &headers {
                call.arg(name).arg(value);
            }
            call.arg(wire::DATA).arg(&message.payload[..]);
        }
        call
    }

    /// Sends the next call of every lane together, and settles what was answered. Lanes that must be sent again come back
    /// as they were.
    async fn round(&self, batch: &mut Batch<'_>, lanes: &mut [Lane<'_>]) -> Round {
        let mut pipeline = redis::pipe();
        let mut calls = Vec::new();
        for (number, lane) in lanes.iter_mut().enumerate() {
            let taken = Self::take(batch, lane);
            if !taken.is_empty() {
                pipeline.add_command(self.append(batch, lane, &taken));
                calls.push((number, taken));
            }
        }
        if calls.is_empty() {
            return Round::Over;
        }
        if self.options.replicas > 0 {
            // A little less than the patience for an answer, so that there is one.
            let wait = self.options.timeout.mul_f64(0.8);
            pipeline.cmd("WAIT").arg(self.options.replicas).arg(millis(wait).max(1));
        }
        let mut answers = match self.link.ask(&pipeline).await {
            Ok(answers) => answers,
            Err(failed) => {
                let outcome = error::call_outcome(&failed);
                calls.iter().flat_map(|(_, taken)| taken).for_each(|place| batch.settle(*place, outcome.clone()));
                return Round::Cut;
            }
        };
        let copies = match self.options.replicas {
            0 => Ok(()),
            wanted => enough_copies(answers.pop(), wanted),
        };
        let mut again = false;
        for ((number, taken), answer) in calls.into_iter().zip(answers) {
            match answer {
                Value::ServerError(error) if is_worth_repeating(&error) => {
                    again = true;
                    self.topics.forget(lanes[number].topic);
                    taken.into_iter().rev().for_each(|place| lanes[number].waiting.push_front(place));
                }
                Value::ServerError(error) => {
                    let outcome = error::outcome(&error);
                    taken.into_iter().for_each(|place| batch.settle(place, outcome.clone()));
                }
                answer => settle_answer(batch, lanes[number].shard, taken, answer, &copies),
            }
        }
        if again { Round::Again } else { Round::Sent }
    }

    /// Sends everything of `batch`. A call is repeated when the topic was made anew, or the script was forgotten: none of
    /// its messages was stored then.
    async fn send(&self, batch: &mut Batch<'_>) {
        for _ in 0..MOST_REPEATS {
            let mut lanes = self.sort(batch).await;
            loop {
                match self.round(batch, &mut lanes).await {
                    Round::Sent => {}
                    Round::Over | Round::Cut => return,
                    Round::Again => break,
                }
            }
        }
    }
}

/// How sending a call of every lane ended.
enum Round {
    Sent,
    /// There was nothing to send.
    Over,
    /// The connection was lost.
    Cut,
    /// Redis knew the script or the topic no more.
    Again,
}

fn is_worth_repeating(error: &ServerError) -> bool {
    matches!(error::cause(error), Cause::StaleTopic | Cause::NoScript)
}

/// Whether so many replicas have what was written, and what that means for the messages if not.
fn enough_copies(answer: Option<Value>, wanted: u32) -> Result<(), Outcome> {
    match answer {
        Some(Value::Int(copies)) if copies >= i64::from(wanted) => Ok(()),
        Some(Value::Int(copies)) => {
            Err(Outcome::Unknown(format!("{copies} replicas have it, and {wanted} were asked for")))
        }
        other => Err(Outcome::Unknown(format!("Redis does not say how many replicas have it: {other:?}"))),
    }
}

fn settle_answer(batch: &mut Batch<'_>, shard: u32, taken: Vec<usize>, answer: Value, copies: &Result<(), Outcome>) {
    let Value::Array(ids) = answer else {
        let outcome = Outcome::Unknown(format!("Redis answered {answer:?} to messages"));
        return taken.into_iter().for_each(|place| batch.settle(place, outcome.clone()));
    };
    let mut ids = ids.iter();
    for place in taken {
        let outcome = match (ids.next().and_then(EntryId::from_value), copies) {
            (Some(id), Ok(())) => Outcome::Accepted(Position { partition: shard, offset: id.offset() }),
            (Some(_), Err(outcome)) => outcome.clone(),
            (None, _) => Outcome::Unknown("Redis did not say where it put the message".into()),
        };
        batch.settle(place, outcome);
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[async_trait]
impl Publisher for RedisPublisher {
    async fn publish(&self, messages: &[Message]) -> Vec<Outcome> {
        let mut batch = Batch { messages, outcomes: vec![None; messages.len()], held: HashSet::new() };
        self.send(&mut batch).await;
        // What was never sent: the connection was lost on something before it, or Redis knew its topic otherwise each time.
        for place in 0..messages.len() {
            if batch.outcomes[place].is_none() {
                let outcome = match batch.is_held(place) {
                    true => Outcome::behind_predecessor(),
                    false => Outcome::retry_later(
                        ErrorCode::UNAVAILABLE,
                        "Redis was lost, or the topic changed, before it was sent",
                    ),
                };
                batch.settle(place, outcome);
            }
        }
        batch.outcomes.into_iter().flatten().collect()
    }
}
