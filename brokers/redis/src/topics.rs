//! Which topics there are, and how many shards each has.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use landfall_core::{Error, ErrorCode, ErrorKind, Outcome, Result, TopicName};
use redis::{Pipeline, Value};

use crate::config::Options;
use crate::error;
use crate::link::Link;
use crate::names::{Keys, Names};

/// The registry in Redis, and what this process remembers of it.
#[derive(Debug)]
pub(crate) struct Topics {
    options: Arc<Options>,
    names: Names,
    /// The keys of every shard of a topic.
    known: Mutex<HashMap<TopicName, Arc<[Keys]>>>,
}

/// Why the number of a topic's shards cannot be told.
#[derive(Debug)]
pub(crate) enum Missing {
    Unknown,
    Failed(error::Failed),
    Answered(redis::ServerError),
}

impl Topics {
    pub(crate) fn new(options: Arc<Options>) -> Self {
        let names = Names::new(&options.prefix);
        Self { options, names, known: Mutex::default() }
    }

    /// The shards of `topic`. One that is not there is made, unless that is left to somebody else.
    pub(crate) async fn shards(&self, link: &Link, topic: &TopicName) -> Result<Arc<[Keys]>, Missing> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(topic).cloned();
        match known {
            Some(shards) => Ok(shards),
            None => self.look_up(link, topic).await,
        }
    }

    /// As [`Topics::shards`], from Redis. What belongs to a topic and was lost is put back.
    pub(crate) async fn look_up(&self, link: &Link, topic: &TopicName) -> Result<Arc<[Keys]>, Missing> {
        let mut pipeline = redis::pipe();
        if self.options.create {
            pipeline.cmd("HSETNX").arg(self.names.topics()).arg(topic.as_str()).arg(self.options.partitions);
        }
        pipeline.cmd("HGET").arg(self.names.topics()).arg(topic.as_str());
        let answers = ask(link, &pipeline).await?;
        let shards = answers.last().and_then(number).filter(|shards| *shards > 0).ok_or(Missing::Unknown)?;
        self.note(link, topic, shards).await
    }

    /// Makes `topic` with `shards`, unless it is there; answers with how many it has, and whether it was made.
    pub(crate) async fn make(&self, link: &Link, topic: &TopicName, shards: u32) -> Result<(u32, bool), Missing> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("HSETNX").arg(self.names.topics()).arg(topic.as_str()).arg(shards);
        pipeline.cmd("HGET").arg(self.names.topics()).arg(topic.as_str());
        let answers = ask(link, &pipeline).await?;
        let found = answers.get(1).and_then(number).ok_or(Missing::Unknown)?;
        self.note(link, topic, found).await?;
        Ok((found, answers.first() == Some(&Value::Int(1))))
    }

    /// Says beside every stream how many there are, so that a publisher which thinks otherwise is told.
    async fn note(&self, link: &Link, topic: &TopicName, shards: u32) -> Result<Arc<[Keys]>, Missing> {
        let shards: Arc<[Keys]> = (0..shards).map(|shard| self.names.keys(topic, shard)).collect();
        let mut pipeline = redis::pipe();
        for keys in shards.iter() {
            pipeline.cmd("HSET").arg(&keys.hash).arg("partitions").arg(shards.len());
            // A copy of another number, if the registry was lost and the topic is made anew.
            pipeline.cmd("HDEL").arg(&keys.recent).arg("partitions");
        }
        ask(link, &pipeline).await?;
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(topic.clone(), shards.clone());
        Ok(shards)
    }

    pub(crate) fn forget(&self, topic: &TopicName) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(topic);
    }

    /// Every topic with its number of shards, by name.
    pub(crate) async fn list(&self, link: &Link) -> Result<Vec<(TopicName, u32)>, Missing> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("HGETALL").arg(self.names.topics());
        let answers = ask(link, &pipeline).await?;
        let pairs: HashMap<String, u32> =
            answers.into_iter().next().and_then(|answer| redis::from_redis_value(answer).ok()).unwrap_or_default();
        let mut topics: Vec<_> =
            pairs.into_iter().filter_map(|(name, shards)| Some((TopicName::new(name).ok()?, shards))).collect();
        topics.sort();
        Ok(topics)
    }
}

/// Every answer of `pipeline`, or the first error among them.
pub(crate) async fn ask(link: &Link, pipeline: &Pipeline) -> Result<Vec<Value>, Missing> {
    let answers = link.ask(pipeline).await.map_err(Missing::Failed)?;
    for answer in &answers {
        if let Value::ServerError(error) = answer {
            return Err(Missing::Answered(error.clone()));
        }
    }
    Ok(answers)
}

pub(crate) fn number<N: std::str::FromStr + TryFrom<i64>>(value: &Value) -> Option<N> {
    match value {
        Value::Int(number) => N::try_from(*number).ok(),
        Value::BulkString(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

impl Missing {
    pub(crate) fn outcome(&self, topic: &TopicName) -> Outcome {
        match self {
            Self::Unknown => Outcome::retry_later(ErrorCode::UNKNOWN_TOPIC, format!("there is no topic {topic}")),
            // Asking for a topic sends no message, so a lost answer leaves nothing in doubt.
            Self::Failed(error::Failed::BeforeSending(error) | error::Failed::AfterSending(error)) => {
                let code = if error::is_denied(error) { ErrorCode::DENIED } else { ErrorCode::UNAVAILABLE };
                Outcome::retry_later(code, format!("Redis cannot be reached: {error}"))
            }
            Self::Answered(error) => match error::outcome(error) {
                Outcome::Unknown(reason) => Outcome::retry_later(ErrorCode::UNAVAILABLE, reason),
                refused => refused,
            },
        }
    }

    /// What Redis said, for people.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Unknown => "there is none".into(),
            Self::Failed(error::Failed::BeforeSending(error) | error::Failed::AfterSending(error)) => error.to_string(),
            Self::Answered(error) => error::text(error),
        }
    }

    pub(crate) fn error(self, topic: &TopicName) -> Error {
        match self {
            Self::Unknown => Error::new(ErrorKind::NotFound, format!("there is no topic {topic}")),
            Self::Failed(failed) => error::of_call(failed),
            Self::Answered(answer) => error::of_answer(&answer),
        }
    }
}
