//! The broker as the daemon picks it by URL.

use std::sync::Arc;

use async_trait::async_trait;
use landfall_core::{
    Broker, BrokerCapabilities, GroupName, Publisher, Result, StartAt, Subscriber, TopicInfo, TopicName, TopicReader,
};

use crate::config::Options;
use crate::connection::Connection;
use crate::names::Names;
use crate::reader::Reader;
use crate::subscriber::NatsSubscriber;
use crate::topic::Topics;

/// What a few headers take beside a payload.
const ROOM_FOR_HEADERS: usize = 4 * 1024;

/// JetStream on one server or a cluster. Clones share the connection.
#[derive(Debug, Clone)]
pub struct Nats {
    pub(crate) connection: Connection,
    pub(crate) names: Names,
    pub(crate) options: Arc<Options>,
    pub(crate) topics: Topics,
}

impl Nats {
    /// Connects; from then on the connection is made again by itself, whatever happens to it.
    pub async fn connect(options: Options) -> Result<Self> {
        let (names, options) = (Names::new(&options.prefix)?, Arc::new(options));
        let connection = Connection::open(&options).await?;
        let topics = Topics::new(connection.clone(), names.clone(), options.clone());
        Ok(Self { connection, names, options, topics })
    }
}

#[async_trait]
impl Broker for Nats {
    fn capabilities(&self) -> BrokerCapabilities {
        let payload_bytes = Some(self.largest().saturating_sub(ROOM_FOR_HEADERS));
        BrokerCapabilities { payload_bytes, ..BrokerCapabilities::ALL }
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::new(self.clone())
    }

    /// The members of a group share the shards of the topic; when one joins, leaves or is silent for
    /// [`Options::session_timeout`], shards move, and what was not finished in them is delivered again; acknowledging it where
    /// it was delivered before is a `Conflict`.
    async fn subscribe(&self, topic: &TopicName, group: &GroupName) -> Result<Box<dyn Subscriber>> {
        Ok(Box::new(NatsSubscriber::join(self, topic, group)?))
    }

    async fn topics(&self) -> Result<Vec<TopicInfo>> {
        let topics = self.topics.all().await?.into_iter().map(|(topic, info)| TopicInfo {
            topic: topic.name,
            partitions: topic.partitions,
            messages: info.state.messages,
            bytes: Some(info.state.bytes),
        });
        Ok(topics.collect())
    }

    /// `NotFound` if there is no such topic.
    async fn read(&self, topic: &TopicName, from: StartAt) -> Result<Box<dyn TopicReader>> {
        let topic = self.topics.find(topic).await?;
        Ok(Box::new(Reader::open(self.connection.clone(), topic, from).await?))
    }
}
