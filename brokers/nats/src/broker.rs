//! The [`Broker`] implementation: its capabilities, and how it creates publishers, subscribers and readers.

use std::sync::Arc;

use async_trait::async_trait;
use landfall_core::adapter::{BrokerCapabilities, Subscriber};
use landfall_core::{Broker, GroupName, Publisher, Result, StartAt, TopicInfo, TopicName, TopicReader};

use crate::config::Options;
use crate::connection::Connection;
use crate::names::Names;
use crate::reader::Reader;
use crate::subscriber::NatsSubscriber;
use crate::topic::Topics;

/// Part of the message size limit that is reserved for headers.
const HEADERS_BYTES: usize = 4 * 1024;

/// JetStream on one server or a cluster. Clones share the connection.
///
/// ```no_run
/// # async fn example() -> landfall_core::Result<()> {
/// use landfall_nats::{Nats, Options};
///
/// let broker = Nats::connect(Options::from_url("nats://a:4222,b:4222?replicas=3&dedup=10m")?).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Nats {
    pub(crate) connection: Connection,
    pub(crate) names: Names,
    pub(crate) options: Arc<Options>,
    pub(crate) topics: Topics,
}

impl Nats {
    /// Connects. Afterwards a lost connection is re-established automatically.
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
        let payload_bytes = Some(self.largest().saturating_sub(HEADERS_BYTES));
        BrokerCapabilities { payload_bytes, ..BrokerCapabilities::ALL }
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::new(self.clone())
    }

    /// The members of a group share the shards of the topic. Shards move when a member joins, leaves or is silent for
    /// [`Options::session_timeout`]. Unacknowledged messages of a moved shard are delivered again, and the former
    /// member's acknowledgements fail with `Conflict`.
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

    /// Returns `NotFound` if the topic does not exist.
    async fn read(&self, topic: &TopicName, from: StartAt) -> Result<Box<dyn TopicReader>> {
        let topic = self.topics.find(topic).await?;
        Ok(Box::new(Reader::open(self.connection.clone(), topic, from).await?))
    }
}
