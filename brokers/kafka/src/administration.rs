//! Making and removing topics.

use async_trait::async_trait;
use landfall_core::{Error, ErrorKind, Result, Span, TopicAdministration, TopicName};
use rdkafka::admin::{NewTopic, TopicReplication};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::Kafka;
use crate::error::error;
use crate::topics::Topics;

/// Copies of a topic where nobody said how many, and where there are as many nodes.
const COPIES: usize = 3;

#[async_trait]
impl TopicAdministration for Kafka {
    async fn create_topic(&self, topic: &TopicName, partitions: Option<u32>) -> Result<bool> {
        let topics = self.topics();
        let wanted = partitions.unwrap_or(topics.options.partitions);
        match topics.partitions(topic).await? {
            None => topics.create(topic, wanted).await,
            Some(found) if partitions.is_none_or(|wanted| wanted == found) => Ok(false),
            Some(found) => {
                let sentence = format!("topic {topic} is there with {found} partitions, and {wanted} were asked for");
                Err(Error::new(ErrorKind::Conflict, sentence))
            }
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
    /// Makes `topic` with settings that lose nothing; `false` if somebody else just did.
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
        match answer.into_iter().next() {
            Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => Ok(false),
            Some(Err((_, code))) => Err(failed(KafkaError::AdminOp(code))),
            _ => {
                tracing::info!(%topic, partitions, copies, "topic made");
                Ok(true)
            }
        }
    }
}
