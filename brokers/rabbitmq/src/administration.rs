//! Making and removing topics on purpose.

use async_trait::async_trait;
use landfall_core::{Error, ErrorKind, Result, TopicAdministration, TopicName};
use lapin::options::{ExchangeDeleteOptions, QueueDeleteOptions};

use crate::broker::RabbitMq;
use crate::error::{self, Trouble};
use crate::{layout, names};

impl RabbitMq {
    /// Waits for an answer for so long and no longer: an alarm holds it back until there is room again.
    async fn answer<T>(&self, asked: impl Future<Output = lapin::Result<T>>) -> Result<lapin::Result<T>> {
        let late = |_| Error::new(ErrorKind::Unavailable, "RabbitMQ did not answer in time");
        tokio::time::timeout(self.options.timeout, asked).await.map_err(late)
    }
}

#[async_trait]
impl TopicAdministration for RabbitMq {
    /// A topic is an exchange and has no partitions; each group has, as many as the broker's URL says when it is made.
    async fn create_topic(&self, topic: &TopicName, partitions: Option<u32>) -> Result<bool> {
        if partitions.is_some_and(|wanted| wanted != self.options.partitions) {
            let text = "the partitions are those of each group: set partitions in the broker URL of its members";
            return Err(Error::new(ErrorKind::Conflict, text));
        }
        let name = names::topic(&self.options.prefix, topic)?;
        let failed = |error| error::error(format!("topic {topic} cannot be made"), error);
        let looking = self.publishing.channel().await?;
        match self.answer(layout::declare_topic(&looking, &name, true)).await? {
            Ok(()) => Ok(false),
            Err(error) if error::trouble(&error) == Trouble::Missing => {
                let channel = self.publishing.channel().await?;
                self.answer(layout::declare_topic(&channel, &name, false)).await?.map_err(failed)?;
                Ok(true)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// The topic's exchange first, so that nothing comes in any more, then its groups with everything in their queues.
    async fn delete_topic(&self, topic: &TopicName) -> Result<bool> {
        let client = self.management()?;
        let name = names::topic(&self.options.prefix, topic)?;
        let of_topic = |found: &str| names::group_of(&self.options.prefix, found).is_some_and(|(of, _)| of == *topic);
        let exchanges = client.exchanges().await?;
        let was_there = exchanges.iter().any(|exchange| exchange.name == name.as_str());
        let failed = |error| error::error(format!("topic {topic} cannot be removed"), error);
        let channel = self.publishing.channel().await?;
        let deleting = channel.exchange_delete(name, ExchangeDeleteOptions::default());
        self.answer(deleting).await?.map_err(failed)?;
        for exchange in exchanges.into_iter().filter(|exchange| of_topic(&exchange.name)) {
            let deleting = channel.exchange_delete(exchange.name.into(), ExchangeDeleteOptions::default());
            self.answer(deleting).await?.map_err(failed)?;
        }
        for queue in client.queues().await?.into_iter().filter(|queue| of_topic(&queue.name)) {
            let deleting = channel.queue_delete(queue.name.into(), QueueDeleteOptions::default());
            self.answer(deleting).await?.map_err(failed)?;
        }
        Ok(was_there)
    }
}
