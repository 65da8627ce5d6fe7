//! Creating and deletion topics.

use async_trait::async_trait;
use landfall_core::{Error, ErrorKind, Result, TopicAdministration, TopicName};
use lapin::options::{ExchangeDeleteOptions, QueueDeleteOptions};

use crate::broker::RabbitMq;
use crate::error::{self, ServerError};
use crate::{layout, names};

impl RabbitMq {
    /// Limits a request to `timeout`. During an alarm the server answers only when the alarm ends.
    async fn with_timeout<T>(&self, request: impl Future<Output = lapin::Result<T>>) -> Result<lapin::Result<T>> {
        let late = |_| Error::new(ErrorKind::Unavailable, "RabbitMQ did not answer in time");
        tokio::time::timeout(self.options.timeout, request).await.map_err(late)
    }
}

#[async_trait]
impl TopicAdministration for RabbitMq {
    /// A topic is an exchange and has no partitions. Each group has as many as the broker URL sets when it is created.
    async fn create_topic(&self, topic: &TopicName, partitions: Option<u32>) -> Result<bool> {
        if partitions.is_some_and(|wanted| wanted != self.options.partitions) {
            let text = "partitions belong to each group: set partitions in the broker URL of its members";
            return Err(Error::new(ErrorKind::Conflict, text));
        }
        let name = names::topic(&self.options.prefix, topic)?;
        let failed = |error| error::error(format!("topic {topic} cannot be created"), error);
        let channel = self.publishing.channel().await?;
        match self.with_timeout(layout::declare_topic(&channel, &name, true)).await? {
            Ok(()) => Ok(false),
            Err(error) if error::classify(&error) == ServerError::Missing => {
                let channel = self.publishing.channel().await?;
                self.with_timeout(layout::declare_topic(&channel, &name, false)).await?.map_err(failed)?;
                Ok(true)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Deletes the topic's exchange first, so that nothing more is routed, then its groups with all queued messages.
    async fn delete_topic(&self, topic: &TopicName) -> Result<bool> {
        let client = self.management()?;
        let name = names::topic(&self.options.prefix, topic)?;
        let of_topic = |found: &str| names::group_of(&self.options.prefix, found).is_some_and(|(of, _)| of == *topic);
        let exchanges = client.exchanges().await?;
        let existed = exchanges.iter().any(|exchange| exchange.name == name.as_str());
        let failed = |error| error::error(format!("topic {topic} cannot be deleted"), error);
        let channel = self.publishing.channel().await?;
        let deletion = channel.exchange_delete(name, ExchangeDeleteOptions::default());
        self.with_timeout(deletion).await?.map_err(failed)?;
        for exchange in exchanges.into_iter().filter(|exchange| of_topic(&exchange.name)) {
            let deletion = channel.exchange_delete(exchange.name.into(), ExchangeDeleteOptions::default());
            self.with_timeout(deletion).await?.map_err(failed)?;
        }
        for queue in client.queues().await?.into_iter().filter(|queue| of_topic(&queue.name)) {
            let deletion = channel.queue_delete(queue.name.into(), QueueDeleteOptions::default());
            self.with_timeout(deletion).await?.map_err(failed)?;
        }
        Ok(existed)
    }
}
