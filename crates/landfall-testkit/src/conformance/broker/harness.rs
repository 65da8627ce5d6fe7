//! The harness of the broker cases: a broker and shared steps.

use std::sync::Arc;
use std::time::Duration;

use landfall_core::adapter::{BrokerCapabilities, Delivery, Subscriber};
use landfall_core::{Broker, Message, Position, Publisher, StartAt, StoredMessage, TopicReader};

use super::BrokerFixture;
use crate::VIOLATION;
use crate::conformance::sample::{group, topic};

/// The limit of every wait.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

/// The broker under test.
#[derive(Debug)]
pub struct Harness<F: BrokerFixture> {
    fixture: F,
}

impl<F: BrokerFixture> Harness<F> {
    /// Creates the groups of the cases first if the broker has no replay: messages then reach only existing groups.
    pub(super) async fn new(fixture: F) -> Self {
        let harness = Self { fixture };
        let capabilities = harness.capabilities();
        if !capabilities.replay {
            let groups = if capabilities.groups { &["stock", "payment"][..] } else { &["stock"] };
            for (name, member_of) in ["orders", "payments", "billing"]
                .into_iter()
                .flat_map(|name| groups.iter().map(move |group| (name, group)))
            {
                close(harness.broker().subscribe(&topic(name), &group(member_of)).await.unwrap()).await;
            }
        }
        harness
    }

    pub(super) fn broker(&self) -> Arc<dyn Broker> {
        self.fixture.broker()
    }

    pub(super) fn capabilities(&self) -> BrokerCapabilities {
        self.broker().capabilities()
    }

    /// Restarts the broker.
    pub(super) async fn reopen(self) -> Self {
        Self { fixture: self.fixture.reopen().await }
    }

    /// Publishes one batch, and asserts that every message is accepted.
    pub(super) async fn publish(&self, messages: &[Message]) -> Vec<Position> {
        publish(&*self.broker().publisher(), messages).await
    }

    /// Joins the group `member_of` on the topic `orders`.
    pub(super) async fn subscribe(&self, member_of: &str) -> Box<dyn Subscriber> {
        self.broker().subscribe(&topic("orders"), &group(member_of)).await.unwrap()
    }

    /// Reads the topic `orders`.
    pub(super) async fn reader(&self, from: StartAt) -> Box<dyn TopicReader> {
        self.broker().read(&topic("orders"), from).await.unwrap()
    }
}

pub(super) async fn publish(publisher: &dyn Publisher, messages: &[Message]) -> Vec<Position> {
    let outcomes = publisher.publish(messages).await;
    assert_eq!(outcomes.len(), messages.len(), "the number of outcomes differs from the number of messages");
    let positions = outcomes.into_iter().map(|outcome| match outcome {
        landfall_core::Outcome::Accepted(position) => position,
        other => panic!("a valid message was not accepted: {other:?}"),
    });
    positions.collect()
}

/// Returns the next delivery, which must arrive within the time limit.
pub(super) async fn next(subscriber: &mut Box<dyn Subscriber>) -> Delivery {
    let delivery =
        tokio::time::timeout(TIMEOUT, subscriber.next()).await.expect("no delivery within the time limit").unwrap();
    delivery.expect("the broker closed the subscription")
}

/// Receives and acknowledges the next message.
pub(super) async fn consume_one(subscriber: &mut Box<dyn Subscriber>) -> Message {
    let (message, _, acknowledge) = next(subscriber).await.into_parts();
    acknowledge.ack().await.unwrap();
    message.unwrap()
}

/// Receives and acknowledges the next `count` messages.
pub(super) async fn consume_many(subscriber: &mut Box<dyn Subscriber>, count: usize) -> Vec<Message> {
    let mut messages = Vec::with_capacity(count);
    while messages.len() < count {
        messages.push(consume_one(subscriber).await);
    }
    messages
}

/// Receives the next `count` deliveries without acknowledging them.
pub(super) async fn receive_many(subscriber: &mut Box<dyn Subscriber>, count: usize) -> Vec<Delivery> {
    let mut deliveries = Vec::with_capacity(count);
    while deliveries.len() < count {
        deliveries.push(next(subscriber).await);
    }
    deliveries
}

pub(super) async fn close(subscriber: Box<dyn Subscriber>) {
    tokio::time::timeout(TIMEOUT, subscriber.close())
        .await
        .expect("the subscriber did not close within the time limit")
        .unwrap();
}

/// Reads up to the current end.
pub(super) async fn read_all(reader: &mut Box<dyn TopicReader>) -> Vec<StoredMessage> {
    let mut stored = Vec::new();
    loop {
        let batch = reader.read(3).await.unwrap();
        assert!(batch.len() <= 3, "the reader returned more than the limit");
        if batch.is_empty() {
            return stored;
        }
        stored.extend(batch);
    }
}

/// Asserts that each key's messages are in the order of their sequences.
pub(super) fn assert_ordered_by_key(messages: &[Message]) {
    let mut last = std::collections::BTreeMap::new();
    for message in messages {
        let (Some(key), Some(sequence)) = (&message.key, message.sequence) else { continue };
        if let Some(before) = last.insert((&message.topic, key), sequence) {
            assert!(
                before < sequence,
                "{VIOLATION} message {sequence} of key {key} was delivered after message {before}"
            );
        }
    }
}
