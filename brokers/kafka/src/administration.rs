//! Creating and deleting topics.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall_core::{Error, ErrorKind, Result, Span, TopicAdministration, TopicName};
use rdkafka::admin::{NewTopic, TopicReplication};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::Kafka;
use crate::error::{error, kind};
use crate::topics::Topics;

/// Replication factor of a new topic if the URL does not set one. A smaller cluster gets one replica per node.
const DEFAULT_REPLICAS: usize = 3;

/// Pause between metadata requests while a new topic propagates to the nodes.
const METADATA_POLL_INTERVAL: Duration = Duration::from_millis(10);

#[async_trait]
impl TopicAdministration for Kafka {
    async fn create_topic(&self, topic: &TopicName, partitions: Option<u32>) -> Result<bool> {
        let topics = self.topics();
        if topics.partitions(topic).await?.is_none()
            && topics.create(topic, partitions.unwrap_or(topics.options.partitions)).await?
        {
            return Ok(true);
        }
        let found = topics.wait_until_visible(topic).await?;
        match partitions {
            Some(wanted) if wanted != found => {
                let reason =
                    format!("topic {topic} already exists with {found} partitions, not the requested {wanted}");
                Err(Error::new(ErrorKind::Conflict, reason))
            }
            _ => Ok(false),
        }
    }

    async fn delete_topic(&self, topic: &TopicName) -> Result<bool> {
        let (topics, name) = (self.topics(), self.topics().name(topic)?);
        let failed = |cause| error(format!("topic {topic} cannot be deleted"), cause);
        let answer = topics.administer(async |admin, options| admin.delete_topics(&[&name], options).await).await;
        let answer = answer.map_err(failed)?;
        topics.forget();
        match answer.into_iter().next() {
            Some(Err((_, RDKafkaErrorCode::UnknownTopicOrPartition))) => Ok(false),
            Some(Err((_, code))) => Err(failed(KafkaError::AdminOp(code))),
            _ => Ok(true),
        }
    }
}

impl Topics {
    /// Creates `topic` with settings that do not lose messages. Returns `false` if it already exists.
    /// When this returns, the nodes report the topic in their metadata.
    pub(crate) async fn create(&self, topic: &TopicName, partitions: u32) -> Result<bool> {
        let name = self.name(topic)?;
        let replicas = match self.options.replication {
            Some(replicas) => usize::from(replicas),
            None => self.metadata(None).await?.brokers().len().clamp(1, DEFAULT_REPLICAS),
        };
        let min_in_sync = replicas.saturating_sub(1).max(1).to_string();
        let retention_ms = match self.options.retention {
            Span::Time(time) => time.as_millis().to_string(),
            Span::Forever => "-1".into(),
        };
        let message_bytes = self.options.message_bytes.to_string();
        let flush_messages = self.options.flush_messages.map(|count| count.to_string());
        let flush_ms = self.options.flush_interval.map(|time| time.as_millis().max(1).to_string());
        let mut new = NewTopic::new(&name, partitions as i32, TopicReplication::Fixed(replicas as i32))
            .set("min.insync.replicas", &min_in_sync)
            .set("unclean.leader.election.enable", "false")
            .set("cleanup.policy", "delete")
            .set("retention.ms", &retention_ms)
            .set("retention.bytes", "-1")
            .set("max.message.bytes", &message_bytes)
            // The broker's append time, independent of the sender's clock.
            .set("message.timestamp.type", "LogAppendTime");
        for (setting, value) in [("flush.messages", &flush_messages), ("flush.ms", &flush_ms)] {
            if let Some(value) = value {
                new = new.set(setting, value);
            }
        }
        let failed = |cause| error(format!("topic {topic} cannot be created"), cause);
        let answer = self.administer(async |admin, options| admin.create_topics([&new], options).await).await;
        let answer = answer.map_err(failed)?;
        let created = match answer.into_iter().next() {
            Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => false,
            Some(Err((_, code))) => {
                // The cluster rejected the topic's settings, not a message: report a missing topic, which is retriable.
                let kind = match kind(code) {
                    ErrorKind::Invalid => ErrorKind::NotFound,
                    kind => kind,
                };
                let reason = format!("topic {topic} cannot be created");
                return Err(Error::new(kind, reason).with_source(KafkaError::AdminOp(code)));
            }
            _ => {
                tracing::info!(%topic, partitions, replicas, "topic created");
                true
            }
        };
        self.wait_until_visible(topic).await?;
        Ok(created)
    }

    /// Waits until the nodes report a topic that the controller created, and returns its number of partitions.
    /// The controller answers before the metadata reaches the nodes.
    async fn wait_until_visible(&self, topic: &TopicName) -> Result<u32> {
        let deadline = Instant::now() + self.options.connect_timeout;
        loop {
            match self.partitions(topic).await? {
                Some(partitions) => return Ok(partitions),
                None if Instant::now() < deadline => tokio::time::sleep(METADATA_POLL_INTERVAL).await,
                None => {
                    let reason = format!("topic {topic} was created, but the nodes do not report it yet");
                    return Err(Error::new(ErrorKind::Unavailable, reason));
                }
            }
        }
    }
}
