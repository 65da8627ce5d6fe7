//! Planted bugs: each violates one promise. If the harness did not detect it, a clean run would prove nothing.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use landfall::{
    Acknowledge, Broker, BrokerCapabilities, Delivery, GroupName, Message, Outcome, Publisher, Result, StartAt,
    Subscriber, TopicInfo, TopicName, TopicReader,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlantedBug {
    /// The consumer acknowledges messages on receipt: a crash loses them (L1).
    AcknowledgeEarly,
    /// The writer enqueues in a separate transaction: a rollback does not undo it (L2).
    EnqueueOutside,
    /// The inbox does not record the message: a redelivery duplicates its effect (L3).
    SkipInbox,
    /// The relay publishes each batch in reverse (L4).
    ReverseBatches,
}

/// Wraps the broker with the planted bug, if the bug concerns it.
pub fn with_broker_bug(broker: Arc<dyn Broker>, planted_bug: Option<PlantedBug>) -> Arc<dyn Broker> {
    match planted_bug {
        Some(PlantedBug::AcknowledgeEarly) => Arc::new(AcknowledgesEarly(broker)),
        _ => broker,
    }
}

pub fn with_publisher_bug(publisher: Arc<dyn Publisher>, planted_bug: Option<PlantedBug>) -> Arc<dyn Publisher> {
    match planted_bug {
        Some(PlantedBug::ReverseBatches) => Arc::new(ReversesBatches(publisher)),
        _ => publisher,
    }
}

struct ReversesBatches(Arc<dyn Publisher>);

#[async_trait]
impl Publisher for ReversesBatches {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        let reversed: Vec<_> = batch.iter().rev().cloned().collect();
        let mut outcomes = self.0.publish(&reversed).await;
        outcomes.reverse();
        outcomes
    }
}

struct AcknowledgesEarly(Arc<dyn Broker>);

#[async_trait]
impl Broker for AcknowledgesEarly {
    fn capabilities(&self) -> BrokerCapabilities {
        self.0.capabilities()
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        self.0.publisher()
    }

    async fn subscribe(&self, topic: &TopicName, group: &GroupName) -> Result<Box<dyn Subscriber>> {
        Ok(Box::new(EarlySubscriber(self.0.subscribe(topic, group).await?)))
    }

    async fn topics(&self) -> Result<Vec<TopicInfo>> {
        self.0.topics().await
    }

    async fn read(&self, topic: &TopicName, from: StartAt) -> Result<Box<dyn TopicReader>> {
        self.0.read(topic, from).await
    }
}

struct EarlySubscriber(Box<dyn Subscriber>);

#[async_trait]
impl Subscriber for EarlySubscriber {
    async fn next(&mut self) -> Result<Option<Delivery>> {
        let Some(delivery) = self.0.next().await? else { return Ok(None) };
        let (message, position, acknowledge) = delivery.into_parts();
        acknowledge.ack().await?;
        Ok(Some(Delivery::new(message, position, Box::new(AlreadyAcknowledged))))
    }

    async fn close(self: Box<Self>) -> Result<()> {
        self.0.close().await
    }
}

#[derive(Debug)]
struct AlreadyAcknowledged;

#[async_trait]
impl Acknowledge for AlreadyAcknowledged {
    async fn ack(self: Box<Self>) -> Result<()> {
        Ok(())
    }

    async fn nack(self: Box<Self>, _delay: Duration) -> Result<()> {
        Ok(())
    }
}
