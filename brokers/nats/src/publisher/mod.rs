//! Publishing: the messages of a batch are sent topic by topic, all topics at once.

pub(crate) mod publish_ack;
pub(crate) mod send;

use std::collections::BTreeMap;

use async_trait::async_trait;
use futures_util::future::join_all;
use landfall_broker_toolkit::{KeySequencer, Pipelining};
use landfall_core::{ErrorCode, ErrorKind, Message, Outcome, Publisher, TopicName};

use crate::broker::Nats;
use crate::error::unresolved_topic;
use crate::topic::Topic;
use send::Sending;

#[async_trait]
impl Publisher for Nats {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        if !self.connection.is_connected() {
            return vec![self.connection.not_sent(); batch.len()];
        }
        let mut topics: BTreeMap<&TopicName, Vec<usize>> = BTreeMap::new();
        for (index, message) in batch.iter().enumerate() {
            topics.entry(&message.topic).or_default().push(index);
        }
        let each = topics.into_iter().map(async |(topic, indexes)| {
            let messages: Vec<&Message> = indexes.iter().map(|index| &batch[*index]).collect();
            indexes.into_iter().zip(self.publish_topic(topic, &messages).await)
        });
        let mut outcomes = vec![Outcome::Unknown("no outcome was recorded".into()); batch.len()];
        for (index, outcome) in join_all(each).await.into_iter().flatten() {
            outcomes[index] = outcome;
        }
        outcomes
    }
}

impl Nats {
    async fn publish_topic(&self, name: &TopicName, messages: &[&Message]) -> Vec<Outcome> {
        let topic = match self.topics.get(name).await {
            Ok(topic) => topic,
            Err(error) => {
                let mut sequencer = KeySequencer::new(messages.iter().copied(), Pipelining::OnePerKey);
                sequencer.refuse_unsent(|_| Some(unresolved_topic(&error)));
                return sequencer.into_outcomes();
            }
        };
        let mut sending = Sending::new(self, &topic, messages);
        sending.run().await;
        let without_stream = std::mem::take(&mut sending.without_stream);
        let mut outcomes = sending.into_outcomes();
        if !without_stream.is_empty() {
            let outcome = self.why_no_stream(&topic).await;
            without_stream.into_iter().for_each(|index| outcomes[index] = outcome.clone());
        }
        outcomes
    }

    /// The largest message that the server accepts, headers included.
    pub(crate) fn largest(&self) -> usize {
        self.connection.client().max_payload()
    }

    /// Finds out whether the stream is gone or has no leader.
    async fn why_no_stream(&self, topic: &Topic) -> Outcome {
        self.topics.forget(&topic.name);
        match self.topics.find(&topic.name).await {
            Ok(_) => Outcome::retry_later(ErrorCode::UNAVAILABLE, "the stream has no leader now"),
            Err(error) if error.kind() == ErrorKind::NotFound && self.options.create => {
                let reason = "the stream is gone; the next attempt creates it again";
                Outcome::retry_later(ErrorCode::UNKNOWN_TOPIC, reason)
            }
            Err(error) => unresolved_topic(&error),
        }
    }
}
