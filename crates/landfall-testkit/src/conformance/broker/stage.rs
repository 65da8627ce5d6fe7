//! What the cases play on: a broker, and the steps that many of them share.

use std::sync::Arc;
use std::time::Duration;

use landfall_core::{
    Broker, BrokerCapabilities, Delivery, Message, Position, Publisher, StartAt, StoredMessage, Subscriber, TopicReader,
};

use super::BrokerFixture;
use crate::conformance::sample::{group, topic};

/// Within this a bounded wait must have seen what it waits for.
pub(super) const SOON: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Stage<F: BrokerFixture> {
    fixture: F,
}

impl<F: BrokerFixture> Stage<F> {
    /// Where a message reaches only the groups that are there, the groups of the cases are there before they begin.
    pub(super) async fn set(fixture: F) -> Self {
        let stage = Self { fixture };
        let capabilities = stage.capabilities();
        if !capabilities.replay {
            let groups = if capabilities.groups { &["stock", "payment"][..] } else { &["stock"] };
            for (name, member_of) in ["orders", "payments", "billing"]
                .into_iter()
                .flat_map(|name| groups.iter().map(move |group| (name, group)))
            {
                close(stage.broker().subscribe(&topic(name), &group(member_of)).await.unwrap()).await;
            }
        }
        stage
    }

    pub(super) fn broker(&self) -> Arc<dyn Broker> {
        self.fixture.broker()
    }

    pub(super) fn capabilities(&self) -> BrokerCapabilities {
        self.broker().capabilities()
    }

    /// Stops the broker and starts it again.
    pub(super) async fn reopen(self) -> Self {
        Self { fixture: self.fixture.reopen().await }
    }

    /// Publishes in one batch; every message must be accepted.
    pub(super) async fn publish(&self, messages: &[Message]) -> Vec<Position> {
        publish(&*self.broker().publisher(), messages).await
    }

    /// Joins `member_of` on the topic `orders`.
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
    assert_eq!(outcomes.len(), messages.len(), "one outcome per message");
    let positions = outcomes.into_iter().map(|outcome| match outcome {
        landfall_core::Outcome::Accepted(position) => position,
        other => panic!("a sound message was not accepted: {other:?}"),
    });
    positions.collect()
}

/// The next delivery, which must come soon.
pub(super) async fn next(subscriber: &mut Box<dyn Subscriber>) -> Delivery {
    let delivery = tokio::time::timeout(SOON, subscriber.next()).await.expect("a delivery comes soon").unwrap();
    delivery.expect("the broker is not closed")
}

/// The next delivery's message, acknowledged.
pub(super) async fn take(subscriber: &mut Box<dyn Subscriber>) -> Message {
    let (message, _, acknowledge) = next(subscriber).await.into_parts();
    acknowledge.ack().await.unwrap();
    message.unwrap()
}

/// The next `count` messages, acknowledged.
pub(super) async fn take_many(subscriber: &mut Box<dyn Subscriber>, count: usize) -> Vec<Message> {
    let mut messages = Vec::with_capacity(count);
    while messages.len() < count {
        messages.push(take(subscriber).await);
    }
    messages
}

/// The next `count` deliveries, none of them acknowledged.
pub(super) async fn hold_many(subscriber: &mut Box<dyn Subscriber>, count: usize) -> Vec<Delivery> {
    let mut deliveries = Vec::with_capacity(count);
    while deliveries.len() < count {
        deliveries.push(next(subscriber).await);
    }
    deliveries
}

pub(super) async fn close(subscriber: Box<dyn Subscriber>) {
    tokio::time::timeout(SOON, subscriber.close()).await.expect("a subscriber closes soon").unwrap();
}

/// Reads to the end.
pub(super) async fn read_all(reader: &mut Box<dyn TopicReader>) -> Vec<StoredMessage> {
    let mut stored = Vec::new();
    loop {
        let batch = reader.read(3).await.unwrap();
        assert!(batch.len() <= 3, "at most as many as asked for");
        if batch.is_empty() {
            return stored;
        }
        stored.extend(batch);
    }
}

/// Each key's messages must stand in the order of their sequence.
pub(super) fn assert_ordered_by_key(messages: &[Message]) {
    let mut last = std::collections::BTreeMap::new();
    for message in messages {
        let (Some(key), Some(sequence)) = (&message.key, message.sequence) else { continue };
        if let Some(before) = last.insert((&message.topic, key), sequence) {
            assert!(before < sequence, "number {sequence} of key {key} came after number {before}");
        }
    }
}
