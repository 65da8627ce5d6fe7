//! The ports that the log implements.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use landfall_core::{
    Broker, BrokerCapabilities, ErrorCode, GroupName, Message, Outcome, Publisher, Result, StartAt, Subscriber,
    TopicInfo, TopicName, TopicReader,
};

use crate::group::subscriber::LogSubscriber;
use crate::log::Log;
use crate::read::reader::{LogReader, no_such_topic};
use crate::write::publish::{Destination, Plan};

/// `Accepted` means synced: it survives a power cut. A topic comes into being with its first message.
///
/// Concurrent calls are written in the order in which they reached the writer. A call that is dropped before it
/// answered may have published its batch or not.
#[async_trait]
impl Publisher for Log {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        let mut destinations: HashMap<&TopicName, Destination> = HashMap::new();
        let mut latest = None;
        for message in batch {
            // Mostly all messages are of one topic.
            if latest.replace(&message.topic) != Some(&message.topic) && !destinations.contains_key(&message.topic) {
                destinations.insert(&message.topic, self.destination(&message.topic).await);
            }
        }
        let mut plan = Plan::new(batch, &destinations, self.options(), self.buffers());
        let parts = plan.take_parts();
        if parts.is_empty() {
            return plan.outcomes(&crate::write::writer::Answer::Placed(Vec::new()));
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
        // Nothing was written of the message itself, whatever became of the topic.
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

    /// The members of a group share the partitions of the topic; when one joins, leaves or is silent for
    /// [`Options::session_timeout`](crate::Options::session_timeout), partitions move at once, and what was not finished
    /// in them is delivered again; acknowledging it where it was delivered before is a `Conflict`. A topic that does
    /// not exist yet is waited for.
    async fn subscribe(&self, topic: &TopicName, group: &GroupName) -> Result<Box<dyn Subscriber>> {
        Ok(Box::new(LogSubscriber::join(self, topic, group)))
    }

    async fn topics(&self) -> Result<Vec<TopicInfo>> {
        Ok(self.topics().all().iter().map(|topic| topic.info()).collect())
    }

    /// `NotFound` if there is no such topic.
    async fn read(&self, topic: &TopicName, from: StartAt) -> Result<Box<dyn TopicReader>> {
        let found = self.topics().get(topic).ok_or_else(|| no_such_topic(topic))?;
        Ok(Box::new(LogReader::open(topic.clone(), found, from).await?))
    }
}
