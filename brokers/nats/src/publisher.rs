//! Publishing: what can be known is refused before anything is sent, the rest goes to its streams.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use landfall_core::{ErrorCode, ErrorKind, Key, Message, Outcome, Publisher, Result, TopicName};

use crate::broker::Nats;
use crate::config::Options;
use crate::error::{SendError, unresolved_topic};
use crate::send::{Destination, Ready, Sent, send};
use crate::topic::Topic;
use crate::wire;

#[async_trait]
impl Publisher for Nats {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        if batch.is_empty() {
            return Vec::new();
        }
        if !self.connection.is_connected() {
            return vec![self.connection.not_sent(); batch.len()];
        }
        let topics = self.topics_of(batch).await;
        let (ready, mut outcomes) = self.prepare(batch, &topics);
        let sending = ready.into_iter().filter_map(|(name, messages)| {
            let topic = topics.get(name).and_then(|topic| topic.as_ref().ok())?.clone();
            Some(async move {
                let Options { source, atomic, .. } = &*self.options;
                let to = Destination { connection: &self.connection, topic: &topic, source, atomic: *atomic };
                let sent = send(to, messages).await;
                (topic, sent)
            })
        });
        for (topic, sent) in join_all(sending).await {
            self.settle(&topic, sent, &mut outcomes).await;
        }
        let forgotten = || Outcome::Unknown("no outcome was recorded".into());
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(forgotten)).collect()
    }
}

impl Nats {
    async fn topics_of<'a>(&self, batch: &'a [Message]) -> HashMap<&'a TopicName, Result<Arc<Topic>>> {
        let names: HashSet<&TopicName> = batch.iter().map(|message| &message.topic).collect();
        join_all(names.into_iter().map(async |name| (name, self.topics.get(name).await))).await.into_iter().collect()
    }

    /// Everything that may go, by topic, and the outcomes of what may not.
    fn prepare<'a>(
        &self,
        batch: &'a [Message],
        topics: &HashMap<&'a TopicName, Result<Arc<Topic>>>,
    ) -> (BTreeMap<&'a TopicName, Vec<Ready<'a>>>, Vec<Option<Outcome>>) {
        let mut ready: BTreeMap<&TopicName, Vec<Ready<'a>>> = BTreeMap::new();
        let mut outcomes = vec![None; batch.len()];
        let mut held_back: HashSet<(&TopicName, &Key)> = HashSet::new();
        for (place, message) in batch.iter().enumerate() {
            let key = message.key.as_ref().map(|key| (&message.topic, key));
            if key.is_some_and(|key| held_back.contains(&key)) {
                outcomes[place] = Some(Outcome::behind_predecessor());
                continue;
            }
            let prepared = match topics.get(&message.topic) {
                Some(Ok(topic)) => self.ready(topic, place, message),
                Some(Err(error)) => Err(unresolved_topic(error)),
                None => Err(Outcome::retry_later(ErrorCode::UNKNOWN_TOPIC, "the topic was not looked up")),
            };
            match prepared {
                Ok(message_ready) => ready.entry(&message.topic).or_default().push(message_ready),
                Err(outcome) => {
                    outcomes[place] = Some(outcome);
                    held_back.extend(key);
                }
            }
        }
        (ready, outcomes)
    }

    fn ready<'a>(&self, topic: &Topic, place: usize, message: &'a Message) -> Result<Ready<'a>, Outcome> {
        let headers = wire::headers(message, &self.options.source)
            .map_err(|error| Outcome::refuse(ErrorCode::VALIDATION, error.to_string()))?;
        // A batch adds its own headers.
        let size = wire::size(&headers, &message.payload) + BATCH_HEADERS;
        let limit = self.largest().min(topic.message_bytes.unwrap_or(usize::MAX));
        if size > limit {
            // Whoever raises the limit and tries again is not told of the old one.
            self.topics.forget(&topic.name);
            let reason = format!("the message is {size} bytes with its headers, and the limit is {limit}");
            return Err(Outcome::refuse(ErrorCode::TOO_LARGE, reason));
        }
        Ok(Ready { place, message, shard: topic.shard_of(message), headers })
    }

    /// What the server takes at most, headers included.
    pub(crate) fn largest(&self) -> usize {
        self.connection.client().max_payload()
    }

    async fn settle(&self, topic: &Topic, sent: Vec<Sent>, outcomes: &mut [Option<Outcome>]) {
        let is_missing = |(_, outcome): &Sent| matches!(outcome, Some(Err(SendError::NoStream)));
        let nobody = if sent.iter().any(is_missing) { Some(self.why_nobody_listens(topic).await) } else { None };
        for (place, outcome) in sent {
            outcomes[place] = Some(match (outcome, &nobody) {
                (Some(Ok(position)), _) => Outcome::Accepted(position),
                (Some(Err(SendError::NoStream)), Some(why)) => why.clone(),
                (Some(Err(trouble)), _) => trouble.outcome(),
                (None, _) => Outcome::behind_predecessor(),
            });
        }
    }

    /// The stream is gone, or it has no leader.
    async fn why_nobody_listens(&self, topic: &Topic) -> Outcome {
        self.topics.forget(&topic.name);
        match self.topics.find(&topic.name).await {
            Ok(_) => Outcome::retry_later(ErrorCode::UNAVAILABLE, "the stream has no leader now"),
            Err(error) if error.kind() == ErrorKind::NotFound && self.options.create => {
                Outcome::retry_later(ErrorCode::UNKNOWN_TOPIC, "the stream is gone; the next attempt makes it again")
            }
            Err(error) => unresolved_topic(&error),
        }
    }
}

/// `Nats-Batch-Id`, `Nats-Batch-Sequence` and `Nats-Batch-Commit` with their values.
const BATCH_HEADERS: usize = 128;
