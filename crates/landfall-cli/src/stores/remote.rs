//! Brokers that are reached over the network, all through the same ports.

use std::sync::Arc;

use async_trait::async_trait;
use landfall::{Broker, Publisher, Result, StartAt, TopicAdministration, TopicName, TopicReader};

use super::broker::{Administration, OpenBroker, TopicSource};
use crate::topics::{CreatedTopic, TopicDetails, TopicSummary};

struct Remote<B>(Arc<B>);

#[allow(dead_code, reason = "used only by builds with some broker")]
pub(super) fn open<B: Broker + 'static>(broker: B) -> Arc<dyn OpenBroker> {
    Arc::new(Remote(Arc::new(broker)))
}

#[allow(dead_code, reason = "used only by builds with some broker")]
pub(super) fn source<B: Broker + 'static>(broker: B) -> Arc<dyn TopicSource> {
    Arc::new(Remote(Arc::new(broker)))
}

#[allow(dead_code, reason = "used only by builds with some broker")]
pub(super) fn administration<B: Broker + TopicAdministration + 'static>(broker: B) -> Arc<dyn Administration> {
    Arc::new(Remote(Arc::new(broker)))
}

#[async_trait]
impl<B: Broker + 'static> OpenBroker for Remote<B> {
    fn publisher(&self) -> Arc<dyn Publisher> {
        self.0.publisher()
    }

    fn broker(&self) -> Arc<dyn Broker> {
        self.0.clone()
    }

    /// Adapters reconnect automatically, so every outage passes.
    fn health(&self) -> Result<()> {
        Ok(())
    }

    async fn ping(&self) -> Result<()> {
        self.0.ping().await
    }

    fn topics(&self) -> Result<Vec<TopicDetails>> {
        Ok(Vec::new())
    }

    /// Callers wait for every publish, so nothing is in flight.
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl<B: Broker + 'static> TopicSource for Remote<B> {
    async fn topics(&self) -> Result<Vec<TopicSummary>> {
        let topics = self.0.topics().await?.into_iter();
        let summaries = topics.map(|info| TopicSummary {
            topic: info.topic,
            partitions: info.partitions,
            messages: info.messages,
            bytes: info.bytes,
            skew: None,
            settings: None,
        });
        Ok(summaries.collect())
    }

    async fn read(&self, topic: &TopicName, from: StartAt) -> Result<Box<dyn TopicReader>> {
        self.0.read(topic, from).await
    }
}

#[async_trait]
impl<B: Broker + TopicAdministration + 'static> Administration for Remote<B> {
    async fn create_topic(&self, topic: &TopicName, partitions: Option<u32>) -> Result<CreatedTopic> {
        let created = self.0.create_topic(topic, partitions).await?;
        let found = self.0.topics().await?.into_iter().find(|info| info.topic == *topic);
        let partitions = found.map(|info| info.partitions).or(partitions).unwrap_or(1);
        Ok(CreatedTopic { created, partitions, settings: None })
    }

    async fn delete_topic(&self, topic: &TopicName) -> Result<bool> {
        self.0.delete_topic(topic).await
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}
