//! A member of a group as the consumer sees it.

pub(crate) mod in_flight;
pub(crate) mod lagging;
pub(crate) mod member;
pub(crate) mod record;
pub(crate) mod stall;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use landfall_broker_toolkit::Receipt;
use landfall_core::adapter::{Delivery, Subscriber};
use landfall_core::{Error, ErrorKind, GroupName, Position, Result, TopicName};
use tokio::sync::oneshot;

use crate::config::Options;
use crate::topics::Topics;
use in_flight::Deliveries;
use member::Joining;

#[derive(Debug)]
pub(crate) struct KafkaSubscriber {
    topic: TopicName,
    deliveries: Arc<Deliveries>,
    /// Resolves when the member has left its group.
    left: Option<oneshot::Receiver<()>>,
    timeout: Duration,
}

impl KafkaSubscriber {
    /// Joins `group` on `topic`; the group assigns its partitions while the first `next` waits. The topic exists,
    /// unless `create` is off.
    pub(crate) fn join(options: &Options, topics: &Topics, topic: &TopicName, group: &GroupName) -> Result<Self> {
        let deliveries = Arc::new(Deliveries::new(options.in_flight));
        let joining = Joining {
            options: options.clone(),
            topic: topic.clone(),
            name: topics.name(topic)?,
            group: group.clone(),
            deliveries: deliveries.clone(),
        };
        let consumer = joining.join()?;
        let (leaving, left) = oneshot::channel();
        let thread = std::thread::Builder::new().name("landfall-kafka".into()).spawn(move || {
            member::run(consumer, &joining);
            drop(leaving);
        });
        thread.map_err(|cause| {
            Error::new(ErrorKind::Unavailable, "the thread of a subscriber cannot be started").with_source(cause)
        })?;
        Ok(Self { topic: topic.clone(), deliveries, left: Some(left), timeout: options.timeout })
    }
}

#[async_trait]
impl Subscriber for KafkaSubscriber {
    async fn next(&mut self) -> Result<Option<Delivery>> {
        let Some(message) = self.deliveries.next().await? else { return Ok(None) };
        let offset = u64::try_from(message.offset).unwrap_or_default();
        let position = Position { partition: message.partition, offset };
        let decoded = message.content.message(&self.topic);
        Ok(Some(Delivery::new(decoded, position, Receipt::new(self.deliveries.clone(), message))))
    }

    async fn close(mut self: Box<Self>) -> Result<()> {
        self.deliveries.close();
        let Some(left) = self.left.take() else { return Ok(()) };
        match tokio::time::timeout(self.timeout, left).await {
            Ok(_) => Ok(()),
            Err(late) => {
                let reason = "the member did not leave its group in time; its last messages may be delivered again";
                Err(Error::new(ErrorKind::Unavailable, reason).with_source(late))
            }
        }
    }
}

impl Drop for KafkaSubscriber {
    fn drop(&mut self) {
        self.deliveries.close();
    }
}
