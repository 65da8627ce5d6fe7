//! Making and removing topics.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall_core::{Error, ErrorKind, Result, Span, TopicAdministration, TopicName};
use rdkafka::admin::{NewTopic, TopicReplication};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::Kafka;
use crate::error::{error, kind};
use crate::topics::Topics;

/// Copies of a topic where nobody said how many, and where there are as many nodes.
const COPIES: usize = 3;

/// How often a node is asked whether it has heard of a new topic.
const SHOWN_EVERY: Duration = Duration::from_millis(10);

#[async_trait]
impl TopicAdministration for Kafka {
    async fn create_topic(&self, topic: &TopicName, partitions: Option<u32>) -> Result<bool> {
        let topics = self.topics();
        if topics.partitions(topic).await?.is_none()
            && topics.create(topic, partitions.unwrap_or(topics.options.partitions)).await?
        {
            return Ok(true);
        }
        let found = topics.shown(topic).await?;
        match partitions {
            Some(wanted) if wanted != found => {
                let sentence = format!("topic {topic} is there with {found} partitions, and {wanted} were asked for");
                Err(Error::new(ErrorKind::Conflict, sentence))
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
    /// Makes `topic` with settings that lose nothing; `false` if somebody else just did. It is there for whoever asks next.
    pub(crate) async fn create(&self, topic: &TopicName, partitions: u32) -> Result<bool> {
        let name = self.name(topic)?;
        let copies = match self.options.replication {
            Some(copies) => usize::from(copies),
            None => self.metadata(None).await?.brokers().len().clamp(1, COPIES),
        };
        let in_step = copies.saturating_sub(1).max(1).to_string();
        let kept = match self.options.retention {
            Span::Time(time) => time.as_millis().to_string(),
            Span::Forever => "-1".into(),
        };
        let message_bytes = self.options.message_bytes.to_string();
        let new = NewTopic::new(&name, partitions as i32, TopicReplication::Fixed(copies as i32))
            .set("min.insync.replicas", &in_step)
            .set("unclean.leader.election.enable", "false")
            .set("cleanup.policy", "delete")
            .set("retention.ms", &kept)
            .set("retention.bytes", "-1")
            .set("max.message.bytes", &message_bytes)
            // The time at which the cluster took it, whatever a sender's clock says.
            .set("message.timestamp.type", "LogAppendTime");
        let failed = |cause| error(format!("topic {topic} cannot be made"), cause);
        let answer = self.administer(async |admin, options| admin.create_topics([&new], options).await).await;
        let answer = answer.map_err(failed)?;
        let is_ours = match answer.into_iter().next() {
            Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => false,
            Some(Err((_, code))) => {
                // About the settings that were asked for, and no message's fault: there is no such topic.
                let kind = match kind(code) {
                    ErrorKind::Invalid => ErrorKind::NotFound,
                    kind => kind,
                };
                let sentence = format!("topic {topic} cannot be made");
                return Err(Error::new(kind, sentence).with_source(KafkaError::AdminOp(code)));
            }
            _ => {
                tracing::info!(%topic, partitions, copies, "topic made");
                true
            }
        };
        self.shown(topic).await?;
        Ok(is_ours)
    }

    /// How many partitions a topic has that the controller knows of. It says so before the nodes have heard of it.
    async fn shown(&self, topic: &TopicName) -> Result<u32> {
        let limit = Instant::now() + self.options.connect_timeout;
        loop {
            match self.partitions(topic).await? {
                Some(partitions) => return Ok(partitions),
                None if Instant::now() < limit => tokio::time::sleep(SHOWN_EVERY).await,
                None => {
                    let sentence = format!("topic {topic} was made, and the cluster does not show it yet");
                    return Err(Error::new(ErrorKind::Unavailable, sentence));
                }
            }
        }
    }
}
