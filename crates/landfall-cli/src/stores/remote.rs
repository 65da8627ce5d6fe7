//! Brokers that are reached over the network, all of them through the same ports.

use std::sync::Arc;

use async_trait::async_trait;
use landfall::log::{GroupDescription, Growth, TopicDescription, TopicSettings};
use landfall::{
    Broker, Error, ErrorKind, GroupName, Publisher, Result, StartAt, TopicAdministration, TopicName, TopicReader,
};

use super::broker::{Administration, Listed, Made, Outlet, Window};

struct Remote<B>(Arc<B>);

#[allow(dead_code, reason = "used only by builds with some broker")]
pub(super) fn outlet<B: Broker + 'static>(broker: B) -> Arc<dyn Outlet> {
    Arc::new(Remote(Arc::new(broker)))
}

#[allow(dead_code, reason = "used only by builds with some broker")]
pub(super) fn window<B: Broker + 'static>(broker: B) -> Arc<dyn Window> {
    Arc::new(Remote(Arc::new(broker)))
}

#[allow(dead_code, reason = "used only by builds with some broker")]
pub(super) fn administration<B: Broker + TopicAdministration + 'static>(broker: B) -> Arc<dyn Administration> {
    Arc::new(Remote(Arc::new(broker)))
}

#[allow(dead_code, reason = "used only by builds with some broker")]
pub(super) fn has_no_files() -> Error {
    not_for_this_broker("the files of a topic")
}

#[allow(dead_code, reason = "used only by builds without some broker")]
pub(super) fn not_built(feature: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("build landfall with --features {feature}"))
}

fn not_for_this_broker(what: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("{what}: only the embedded log (log:) has that; use the broker's own tools"),
    )
}

#[async_trait]
impl<B: Broker + 'static> Outlet for Remote<B> {
    fn publisher(&self) -> Arc<dyn Publisher> {
        self.0.publisher()
    }

    fn broker(&self) -> Arc<dyn Broker> {
        self.0.clone()
    }

    /// Adapters reconnect by themselves: an outage passes.
    fn health(&self) -> Result<()> {
        Ok(())
    }

    fn topics(&self) -> Result<Vec<TopicDescription>> {
        Ok(Vec::new())
    }

    /// Every publish was waited for, so there is nothing to finish.
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl<B: Broker + 'static> Window for Remote<B> {
    async fn topics(&self) -> Result<Vec<Listed>> {
        let topics = self.0.topics().await?.into_iter();
        let listed = topics.map(|info| Listed {
            topic: info.topic,
            partitions: info.partitions,
            messages: info.messages,
            bytes: info.bytes,
            skew: None,
            settings: None,
        });
        Ok(listed.collect())
    }

    async fn describe(&self, _: &TopicName) -> Result<TopicDescription> {
        Err(not_for_this_broker("the description of a topic"))
    }

    async fn read(&self, topic: &TopicName, from: StartAt) -> Result<Box<dyn TopicReader>> {
        self.0.read(topic, from).await
    }
}

#[async_trait]
impl<B: Broker + TopicAdministration + 'static> Administration for Remote<B> {
    async fn create_topic(
        &self,
        topic: &TopicName,
        partitions: Option<u32>,
        settings: Option<TopicSettings>,
    ) -> Result<Made> {
        if settings.is_some() {
            return Err(not_for_this_broker("settings of a topic"));
        }
        let created = self.0.create_topic(topic, partitions).await?;
        let found = self.0.topics().await?.into_iter().find(|info| info.topic == *topic);
        let partitions = found.map(|info| info.partitions).or(partitions).unwrap_or(1);
        Ok(Made { created, partitions, settings: None })
    }

    async fn configure_topic(&self, _: &TopicName, _: TopicSettings) -> Result<bool> {
        Err(not_for_this_broker("settings of a topic"))
    }

    async fn grow_topic(&self, _: &TopicName, _: u32) -> Result<Growth> {
        Err(not_for_this_broker("more partitions for a topic"))
    }

    async fn delete_topic(&self, topic: &TopicName) -> Result<bool> {
        self.0.delete_topic(topic).await
    }

    async fn seek(&self, _: &TopicName, _: &GroupName, _: StartAt) -> Result<GroupDescription> {
        Err(not_for_this_broker("another place for a group"))
    }

    async fn forget_group(&self, _: &TopicName, _: &GroupName) -> Result<()> {
        Err(not_for_this_broker("forgetting a group"))
    }

    fn describe(&self, _: &TopicName) -> Result<TopicDescription> {
        Err(not_for_this_broker("the description of a topic"))
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}
