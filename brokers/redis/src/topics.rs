//! The registry of topics and their number of shards.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use landfall_core::{Error, ErrorCode, ErrorKind, Outcome, Result, TopicName};
use redis::{Pipeline, Value};

use crate::config::Options;
use crate::error;
use crate::link::Link;
use crate::names::{Keys, Names};

/// The registry in Redis, and this process's cache of it.
#[derive(Debug)]
pub(crate) struct Topics {
    options: Arc<Options>,
    names: Names,
    /// The keys of every shard of a topic.
    known: Mutex<HashMap<TopicName, Arc<[Keys]>>>,
}

/// Why the shards of a topic could not be looked up.
#[derive(Debug)]
pub(crate) enum LookupError {
    /// The topic does not exist.
    NotFound,
    /// Redis did not answer.
    Call(error::CallError),
    /// Redis answered with an error.
    Server(redis::ServerError),
}

impl Topics {
    pub(crate) fn new(options: Arc<Options>) -> Self {
        let names = Names::new(&options.prefix);
        Self { options, names, known: Mutex::default() }
    }

    /// Returns the shards of `topic`, from the cache if possible. A missing topic is created if `create=true`.
    pub(crate) async fn shards(&self, link: &Link, topic: &TopicName) -> Result<Arc<[Keys]>, LookupError> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(topic).cloned();
        match known {
            Some(shards) => Ok(shards),
            None => self.look_up(link, topic).await,
        }
    }

    /// Like [`Topics::shards`], but always from Redis. Also restores lost keys of the topic.
    pub(crate) async fn look_up(&self, link: &Link, topic: &TopicName) -> Result<Arc<[Keys]>, LookupError> {
        let mut pipeline = redis::pipe();
        if self.options.create {
            pipeline.cmd("HSETNX").arg(self.names.topics()).arg(topic.as_str()).arg(self.options.partitions);
        }
        pipeline.cmd("HGET").arg(self.names.topics()).arg(topic.as_str());
        let answers = ask(link, &pipeline).await?;
        let shards = answers.last().and_then(number).filter(|shards| *shards > 0).ok_or(LookupError::NotFound)?;
        self.store_shards(link, topic, shards).await
    }

    /// Creates `topic` with `shards` unless it exists. Returns its number of shards, and whether it was created.
    pub(crate) async fn create(&self, link: &Link, topic: &TopicName, shards: u32) -> Result<(u32, bool), LookupError> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("HSETNX").arg(self.names.topics()).arg(topic.as_str()).arg(shards);
        pipeline.cmd("HGET").arg(self.names.topics()).arg(topic.as_str());
        let answers = ask(link, &pipeline).await?;
        let found = answers.get(1).and_then(number).ok_or(LookupError::NotFound)?;
        self.store_shards(link, topic, found).await?;
        Ok((found, answers.first() == Some(&Value::Int(1))))
    }

    /// Stores the number of shards next to every stream, so that a publisher with another number is refused.
    async fn store_shards(&self, link: &Link, topic: &TopicName, shards: u32) -> Result<Arc<[Keys]>, LookupError> {
        let shards: Arc<[Keys]> = (0..shards).map(|shard| self.names.keys(topic, shard)).collect();
        let mut pipeline = redis::pipe();
        for keys in shards.iter() {
            pipeline.cmd("HSET").arg(&keys.hash).arg("partitions").arg(shards.len());
            // Stale copy of the number, if the registry was lost and the topic is created again.
            pipeline.cmd("HDEL").arg(&keys.recent).arg("partitions");
        }
        ask(link, &pipeline).await?;
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(topic.clone(), shards.clone());
        Ok(shards)
    }

    pub(crate) fn forget(&self, topic: &TopicName) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(topic);
    }

    /// Returns all topics with their number of shards, sorted by name.
    pub(crate) async fn list(&self, link: &Link) -> Result<Vec<(TopicName, u32)>, LookupError> {
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

/// Returns all answers of `pipeline`, or the first error among them.
pub(crate) async fn ask(link: &Link, pipeline: &Pipeline) -> Result<Vec<Value>, LookupError> {
    let answers = link.ask(pipeline).await.map_err(LookupError::Call)?;
    for answer in &answers {
        if let Value::ServerError(error) = answer {
            return Err(LookupError::Server(error.clone()));
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

impl LookupError {
    pub(crate) fn outcome(&self, topic: &TopicName) -> Outcome {
        match self {
            Self::NotFound => Outcome::retry_later(ErrorCode::UNKNOWN_TOPIC, format!("topic {topic} does not exist")),
            // A lookup sends no message, so a lost answer leaves no outcome unknown.
            Self::Call(error::CallError::BeforeSending(error) | error::CallError::AfterSending(error)) => {
                let code = if error::is_denied(error) { ErrorCode::DENIED } else { ErrorCode::UNAVAILABLE };
                Outcome::retry_later(code, format!("Redis is unreachable: {error}"))
            }
            Self::Server(error) => match error::outcome(error) {
                Outcome::Unknown(reason) => Outcome::retry_later(ErrorCode::UNAVAILABLE, reason),
                refused => refused,
            },
        }
    }

    /// The error as text for people.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::NotFound => "it does not exist".into(),
            Self::Call(error::CallError::BeforeSending(error) | error::CallError::AfterSending(error)) => {
                error.to_string()
            }
            Self::Server(error) => error::text(error),
        }
    }

    pub(crate) fn into_error(self, topic: &TopicName) -> Error {
        match self {
            Self::NotFound => Error::new(ErrorKind::NotFound, format!("topic {topic} does not exist")),
            Self::Call(failed) => error::call_error(failed),
            Self::Server(answer) => error::server_error(&answer),
        }
    }
}
