//! The [`Broker`] implementation: its capabilities, and how it creates publishers, subscribers and readers.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use landfall_core::adapter::{BrokerCapabilities, Subscriber};
use landfall_core::{Broker, ErrorKind, GroupName, Publisher, Result, StartAt, TopicInfo, TopicName, TopicReader};
use rdkafka::consumer::Consumer;

use crate::client::watermarks;
use crate::config::Options;
use crate::publisher::KafkaPublisher;
use crate::reader::KafkaReader;
use crate::subscriber::KafkaSubscriber;
use crate::topics::Topics;

/// Part of `message_bytes` that is reserved for the headers of a message.
const HEADERS_BYTES: usize = 64 * 1024;

/// A Kafka cluster.
///
/// ```no_run
/// # async fn example() -> landfall_core::Result<()> {
/// use landfall_kafka::{Kafka, Options};
///
/// let broker = Kafka::connect(Options::from_url("kafka://a:9092,b:9092?partitions=12&prefix=shop.")?).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Kafka {
    options: Arc<Options>,
    topics: Arc<Topics>,
    publisher: Arc<KafkaPublisher>,
}

impl Kafka {
    /// Validates the options and creates the clients. The cluster may be down: the clients connect on first use and
    /// reconnect automatically.
    pub async fn connect(options: Options) -> Result<Self> {
        options.check()?;
        let options = Arc::new(options);
        let topics = Arc::new(Topics::new(options.clone())?);
        let publisher = Arc::new(KafkaPublisher::new(options.clone(), topics.clone()));
        Ok(Self { options, topics, publisher })
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn topics(&self) -> &Topics {
        &self.topics
    }
}

#[async_trait]
impl Broker for Kafka {
    fn capabilities(&self) -> BrokerCapabilities {
        BrokerCapabilities {
            // The cluster deduplicates a producer's retried requests, not a message that is published a second time.
            deduplicates: false,
            payload_bytes: Some(self.options.message_bytes.saturating_sub(HEADERS_BYTES)),
            ..BrokerCapabilities::ALL
        }
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        self.publisher.clone()
    }

    async fn subscribe(&self, topic: &TopicName, group: &GroupName) -> Result<Box<dyn Subscriber>> {
        match self.topics.ready(topic).await {
            // The group member waits until the topic and the cluster are available.
            Err(error) if error.kind() == ErrorKind::NotFound || error.is_temporary() => {
                tracing::warn!(%error, %topic, %group, "topic not available yet, subscriber waits");
            }
            ready => drop(ready?),
        }
        Ok(Box::new(KafkaSubscriber::join(&self.options, &self.topics, topic, group)?))
    }

    async fn ping(&self) -> Result<()> {
        let timeout = self.options.connect_timeout;
        self.topics.query(move |client| client.fetch_metadata(None, timeout).map(drop)).await
    }

    async fn topics(&self) -> Result<Vec<TopicInfo>> {
        let (prefix, timeout) = (self.options.prefix.clone(), self.options.connect_timeout);
        let listed = self.topics.query(move |client| {
            let metadata = client.fetch_metadata(None, timeout)?;
            let mut listed = Vec::new();
            for topic in metadata.topics() {
                let Some(name) = topic.name().strip_prefix(&prefix) else { continue };
                let Ok(name) = TopicName::new(name) else { continue };
                // Kafka's internal topics.
                if topic.name().starts_with("__") {
                    continue;
                }
                let mut messages = 0;
                for partition in topic.partitions() {
                    let (low, high) = watermarks(client, topic.name(), partition.id(), timeout)?;
                    messages += u64::try_from(high - low).unwrap_or_default();
                }
                listed.push(TopicInfo {
                    topic: name,
                    partitions: topic.partitions().len() as u32,
                    messages,
                    bytes: None,
                });
            }
            Ok(listed)
        });
        let mut listed = listed.await?;
        listed.sort_by(|one, other| one.topic.cmp(&other.topic));
        Ok(listed)
    }

    async fn read(&self, topic: &TopicName, from: StartAt) -> Result<Box<dyn TopicReader>> {
        Ok(Box::new(KafkaReader::open(&self.options, &self.topics, topic, from).await?))
    }
}

impl fmt::Debug for Kafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kafka").field("options", &self.options).finish_non_exhaustive()
    }
}
