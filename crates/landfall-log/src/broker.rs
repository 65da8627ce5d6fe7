//! The broker ports that the log implements.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use landfall_core::adapter::{BrokerCapabilities, Subscriber};
use landfall_core::{
    Broker, Error, ErrorCode, ErrorKind, GroupName, Message, Outcome, Publisher, Result, StartAt, TopicInfo, TopicName,
    TopicReader,
};

use crate::group::subscriber::LogSubscriber;
use crate::log::Log;
use crate::read::reader::{LogReader, no_such_topic};
use crate::write::publish::{Destination, Plan};

/// `Accepted` means synced: the message survives a power cut. Publishing the first message of a topic creates the
/// topic.
///
/// Concurrent calls are written in the order in which they reach the writer. If the call is dropped before it returns,
/// its batch may or may not be published.
#[async_trait]
impl Publisher for Log {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        let mut destinations: HashMap<&TopicName, Destination> = HashMap::new();
        let mut latest = None;
        for message in batch {
            // A batch mostly holds messages of one topic.
            if latest.replace(&message.topic) != Some(&message.topic) && !destinations.contains_key(&message.topic) {
                destinations.insert(&message.topic, self.destination(&message.topic).await);
            }
        }
        let mut plan = Plan::new(batch, &destinations, self.options(), self.buffers());
        let parts = plan.take_parts();
        if parts.is_empty() {
            return plan.outcomes(&crate::write::writer::AppendReply::Completed(Vec::new()));
        }
        let answer = self.writer().append(parts).await;
        plan.outcomes(&answer)
    }
}

impl Log {
    async fn destination(&self, name: &TopicName) -> Destination {
        if let Some(topic) = self.topics().get(name) {
            return Ok(topic.layout());
        }
        // No message was written, so each may be retried even if the topic was created.
        let created = self.writer().create_topic(name.clone()).await;
        created.map(|topic| topic.layout()).map_err(|error| {
            Outcome::retry_later(ErrorCode::UNAVAILABLE, format!("topic {name} could not be created: {error}"))
        })
    }
}

#[async_trait]
impl Broker for Log {
    fn capabilities(&self) -> BrokerCapabilities {
        BrokerCapabilities::ALL
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::new(self.clone())
    }

    /// The members of a group share the partitions of the topic. When a member joins, leaves, or is silent for
    /// [`Options::session_timeout`](crate::Options::session_timeout), partitions move at once and their unacknowledged
    /// messages are redelivered. An acknowledgement from the previous owner is a `Conflict`. The subscriber waits for a
    /// topic that does not exist yet.
    async fn subscribe(&self, topic: &TopicName, group: &GroupName) -> Result<Box<dyn Subscriber>> {
        Ok(Box::new(LogSubscriber::join(self, topic, group)))
    }

    /// Fails while the log has stopped, and while it refuses messages because the disk is full.
    async fn ping(&self) -> Result<()> {
        self.health()?;
        match self.writer().refusal() {
            Some(refusal) => Err(Error::new(ErrorKind::Unavailable, refusal)),
            None => Ok(()),
        }
    }

    async fn topics(&self) -> Result<Vec<TopicInfo>> {
        Ok(self.topics().all().iter().map(|topic| topic.info()).collect())
    }

    /// `NotFound` if the topic does not exist.
    async fn read(&self, topic: &TopicName, from: StartAt) -> Result<Box<dyn TopicReader>> {
        let found = self.topics().get(topic).ok_or_else(|| no_such_topic(topic))?;
        Ok(Box::new(LogReader::open(topic.clone(), found, from).await?))
    }
}
