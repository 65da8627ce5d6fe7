//! The topic `<topic>.retry`: a failed message without order is published there, acknowledged, and read again when due.
//!
//! It is the same message under the same id, so the inbox recognises copies from either topic. A message whose publish
//! was not confirmed stays in this process. If the broker accepted it all the same there are two copies, and one takes
//! effect.

use std::sync::Arc;
use std::time::Duration;

use landfall_core::adapter::Arrival;
use landfall_core::{
    Broker, Failure, GroupName, Message, Outcome, Position, Publisher, Result, SystemHeader, Timestamp, TopicName,
};

use crate::dead_letter::with_failure_headers;

/// The most attempts that a header can claim. Any producer can write it, and a column of the databases must hold it.
const MAX_ATTEMPTS: u64 = 1_000_000;

/// Publishes failed messages and restores them when they return.
pub(crate) struct RetryTopic {
    topic: TopicName,
    /// The topic that the messages belong to.
    main: TopicName,
    publisher: Arc<dyn Publisher>,
    /// Whether the broker delivers a copy to every group, so that a group can skip the messages of another.
    has_groups: bool,
}

/// A message that returned from the retry topic.
pub(super) struct Returned {
    pub(super) message: Message,
    pub(super) origin: Option<Position>,
    pub(super) attempts: u32,
    pub(super) due: Timestamp,
}

impl RetryTopic {
    /// Fails if `<topic>.retry` is not a valid topic name: it may be too long.
    pub(crate) fn new(main: &TopicName, broker: &dyn Broker) -> Result<Self> {
        let topic = TopicName::new(format!("{main}.retry"))?;
        let (publisher, has_groups) = (broker.publisher(), broker.capabilities().groups);
        Ok(Self { topic, main: main.clone(), publisher, has_groups })
    }

    pub(super) fn name(&self) -> &TopicName {
        &self.topic
    }

    /// Publishes a failed message; returns whether the broker confirmed it.
    pub(crate) async fn publish(
        &self,
        arrival: Arrival<'_>,
        group: &GroupName,
        attempts: u32,
        failure: &Failure,
        pause: Duration,
    ) -> bool {
        let mut message = with_failure_headers(arrival, self.topic.clone(), group, attempts, failure);
        let due = Timestamp::now().as_millis().saturating_add(i64::try_from(pause.as_millis()).unwrap_or(i64::MAX));
        message.headers.note(SystemHeader::RetryAt, Timestamp::from_millis(due));
        match self.publisher.publish(std::slice::from_ref(&message)).await.first() {
            Some(Outcome::Accepted(_)) => {
                fail::fail_point!("lane.after-publish");
                true
            }
            outcome => {
                let (message_id, topic) = (message.id, &self.topic);
                let key = message.key.as_ref().map(|key| key.as_str());
                tracing::warn!(
                    %message_id, ?outcome, %topic, key, %group, "retry topic did not confirm, message waits in process"
                );
                false
            }
        }
    }

    /// The message as it was before it was moved, or `None` if it belongs to another group.
    pub(super) fn restore(&self, moved: &Message, group: &GroupName) -> Option<Returned> {
        let noted = |header| moved.headers.noted(header);
        if self.has_groups && noted(SystemHeader::Group).is_some_and(|name| name != group.as_str()) {
            return None;
        }
        let number = |header| noted(header).and_then(|text| text.parse::<u64>().ok());
        let partition = number(SystemHeader::OriginalPartition).and_then(|number| u32::try_from(number).ok());
        let position = partition.zip(number(SystemHeader::OriginalOffset));
        let origin = position.map(|(partition, offset)| Position { partition, offset });
        let headers = moved.headers.without_notes();
        let message = Message { topic: self.main.clone(), headers, ..moved.clone() };
        let attempts = number(SystemHeader::Attempts).unwrap_or_default().min(MAX_ATTEMPTS);
        // A message without a due time was published by hand: it is due now.
        let due = noted(SystemHeader::RetryAt).and_then(|text| text.parse().ok()).unwrap_or(moved.time);
        Some(Returned { message, origin, attempts: attempts as u32, due })
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use landfall_core::Key;
    use tokio::sync::Mutex;

    use super::*;

    /// Accepts every message and records it.
    #[derive(Default)]
    struct RecordingPublisher(Mutex<Vec<Message>>);

    #[async_trait]
    impl Publisher for RecordingPublisher {
        async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
            self.0.lock().await.extend_from_slice(batch);
            vec![Outcome::Accepted(Position { partition: 0, offset: 0 }); batch.len()]
        }
    }

    #[tokio::test]
    async fn returned_message_is_unchanged_and_belongs_to_its_group() {
        let [main, topic] = ["orders", "orders.retry"].map(|name| TopicName::new(name).unwrap());
        let [stock, payment] = ["stock", "payment"].map(|name| GroupName::new(name).unwrap());
        let publisher = Arc::new(RecordingPublisher::default());
        let mut retry = RetryTopic { topic, main: main.clone(), publisher: publisher.clone(), has_groups: true };
        let mut message = Message::new(main, "book").with_key(Key::new("a").unwrap()).with_sequence(7);
        message.headers.insert("tenant", "eu").unwrap();
        let origin = Some(Position { partition: 3, offset: 42 });
        let arrival = Arrival { message: &message, origin };
        let (before, pause) = (Timestamp::now(), Duration::from_secs(60));
        assert!(retry.publish(arrival, &stock, 2, &Failure::retry("no"), pause).await);

        let moved = publisher.0.lock().await.remove(0);
        assert_ne!((&moved.topic, &moved.headers), (&message.topic, &message.headers));
        let returned = retry.restore(&moved, &stock).unwrap();
        assert_eq!((returned.message, returned.origin, returned.attempts), (message, origin, 2));
        assert!(returned.due.as_millis() >= before.as_millis() + 60_000);
        assert!(retry.restore(&moved, &payment).is_none());
        let mut forged = moved.clone();
        forged.headers.note(SystemHeader::Attempts, u64::MAX);
        forged.headers.note(SystemHeader::OriginalPartition, u64::MAX);
        forged.headers.note(SystemHeader::RetryAt, "never");
        let returned = retry.restore(&forged, &stock).unwrap();
        assert_eq!((returned.attempts, returned.origin, returned.due), (1_000_000, None, forged.time));
        retry.has_groups = false;
        assert!(retry.restore(&moved, &payment).is_some(), "no other group receives it");
    }
}
