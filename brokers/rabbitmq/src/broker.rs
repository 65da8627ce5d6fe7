//! The [`Broker`] implementation: its capabilities, and how it creates publishers and subscribers.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use landfall_core::adapter::{BrokerCapabilities, Subscriber};
use landfall_core::{
    Broker, Error, ErrorKind, GroupName, Publisher, Result, StartAt, TopicInfo, TopicName, TopicReader,
};

use crate::config::Options;
use crate::link::Link;
use crate::management::Client;
use crate::names;
use crate::publisher::RabbitPublisher;
use crate::subscriber::RabbitSubscriber;

/// A RabbitMQ server or cluster. Clones share their connections.
///
/// ```no_run
/// # async fn example() -> landfall_core::Result<()> {
/// use landfall_rabbitmq::{RabbitMq, Options};
///
/// let broker = RabbitMq::connect(Options::from_url("amqp://user:secret@a,b/shop?partitions=8")?).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RabbitMq {
    pub(crate) options: Arc<Options>,
    pub(crate) publishing: Arc<Link>,
    consuming: Arc<Link>,
    publisher: Arc<RabbitPublisher>,
}

impl RabbitMq {
    /// Connects once, so that a wrong address or account fails at once. Later it reconnects automatically.
    pub async fn connect(options: Options) -> Result<Self> {
        let options = Arc::new(options);
        let publishing = Arc::new(Link::new(options.clone(), "landfall publishes"));
        let consuming = Arc::new(Link::new(options.clone(), "landfall consumes"));
        publishing.connection().await?;
        let publisher = Arc::new(RabbitPublisher::new(options.clone(), publishing.clone()));
        Ok(Self { options, publishing, consuming, publisher })
    }

    /// Returns a client of the management interface. AMQP cannot list exchanges and queues.
    pub(crate) fn management(&self) -> Result<Client> {
        let management = self.options.management.clone().ok_or_else(|| {
            let text = "this needs management=http://host:15672 in the broker URL, and the plugin rabbitmq_management";
            Error::new(ErrorKind::Unsupported, text)
        })?;
        Ok(Client::new(management, self.options.clone()))
    }
}

#[async_trait]
impl Broker for RabbitMq {
    fn capabilities(&self) -> BrokerCapabilities {
        BrokerCapabilities { replay: false, deduplicates: false, ..BrokerCapabilities::ALL }
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        self.publisher.clone()
    }

    async fn subscribe(&self, topic: &TopicName, group: &GroupName) -> Result<Box<dyn Subscriber>> {
        let (options, link) = (self.options.clone(), self.consuming.clone());
        Ok(Box::new(RabbitSubscriber::join(options, link, topic, group).await?))
    }

    async fn ping(&self) -> Result<()> {
        self.publishing.channel().await.map(drop)
    }

    /// Lists the topics. Each shows the partitions of one of its groups, and the messages of the group with the most.
    async fn topics(&self) -> Result<Vec<TopicInfo>> {
        let client = self.management()?;
        let mut topics: BTreeMap<TopicName, TopicInfo> = BTreeMap::new();
        for exchange in client.exchanges().await? {
            if let Some(topic) = names::topic_of(&self.options.prefix, &exchange.name) {
                let info =
                    TopicInfo { topic: topic.clone(), partitions: self.options.partitions, messages: 0, bytes: None };
                topics.insert(topic, info);
            }
        }
        let mut groups: BTreeMap<(TopicName, GroupName), (u32, u64, u64)> = BTreeMap::new();
        for queue in client.queues().await? {
            if let Some(group) = names::group_of(&self.options.prefix, &queue.name) {
                let sum = groups.entry(group).or_default();
                *sum = (sum.0 + 1, sum.1 + queue.messages, sum.2 + queue.message_bytes);
            }
        }
        for ((topic, _), (partitions, messages, bytes)) in groups {
            if let Some(info) = topics.get_mut(&topic) {
                info.partitions = partitions;
                info.messages = info.messages.max(messages);
                info.bytes = info.bytes.max(Some(bytes));
            }
        }
        Ok(topics.into_values().collect())
    }

    async fn read(&self, _: &TopicName, _: StartAt) -> Result<Box<dyn TopicReader>> {
        let text = "RabbitMQ cannot replay a topic: its queues delete acknowledged messages";
        Err(Error::new(ErrorKind::Unsupported, text))
    }
}
