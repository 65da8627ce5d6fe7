//! A member of a group as the consumer sees it.

pub(crate) mod claim;
pub(crate) mod member;
pub(crate) mod peers;
pub(crate) mod shard;
pub(crate) mod unreadable;
pub(crate) mod worker;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use landfall_broker_toolkit::{Receipt, Settle};
use landfall_core::adapter::{Delivery, Subscriber};
use landfall_core::{Error, ErrorKind, GroupName, Position, Result, TopicName};
use tokio::sync::oneshot;

use crate::broker::Nats;
use crate::names;
use crate::wire;
use member::Member;
use shard::{Content, Deliveries, InFlightMessage};

#[derive(Debug)]
pub(crate) struct NatsSubscriber {
    topic: TopicName,
    settler: Arc<Settler>,
    /// Sent or dropped, it ends the membership; answered when the member has left its group.
    leave: Option<oneshot::Sender<oneshot::Sender<()>>>,
    timeout: Duration,
}

impl NatsSubscriber {
    /// Joins in the background: waits for a topic that does not exist yet, and for a server.
    pub(crate) fn join(broker: &Nats, topic: &TopicName, group: &GroupName) -> Result<Self> {
        broker.names.stream(topic)?;
        names::consumer(group, u32::MAX, u64::MAX)?;
        let deliveries = Arc::new(Deliveries::default());
        let (leave, left) = oneshot::channel();
        let member = Member::new(broker.clone(), topic.clone(), group.clone(), deliveries.clone());
        tokio::spawn(member.run(left));
        let (settler, timeout) = (Arc::new(Settler(deliveries)), broker.options.timeout * 3);
        Ok(Self { topic: topic.clone(), settler, leave: Some(leave), timeout })
    }
}

#[async_trait]
impl Subscriber for NatsSubscriber {
    async fn next(&mut self) -> Result<Option<Delivery>> {
        let Some(message) = self.settler.0.next().await? else { return Ok(None) };
        let position = Position { partition: message.partition, offset: message.offset };
        let stored = &message.content;
        let decoded = match &stored.content {
            Content::Message(raw) => {
                let decoded = wire::message(&self.topic, stored.time, raw.headers.as_ref(), raw.payload.clone());
                decoded.map_err(|error| error.with_payload(raw.payload.clone()))
            }
            Content::Unreadable { why, payload } => Err(Error::invalid(why.as_str()).with_payload(payload.clone())),
        };
        Ok(Some(Delivery::new(decoded, position, Receipt::new(self.settler.clone(), message))))
    }

    async fn close(mut self: Box<Self>) -> Result<()> {
        let Some(leave) = self.leave.take() else { return Ok(()) };
        let (done, when_done) = oneshot::channel();
        if leave.send(done).is_err() {
            return Ok(());
        }
        let late = || {
            let reason = "the group was not left in time; other members claim the shards after the session timeout";
            Error::new(ErrorKind::Unavailable, reason)
        };
        let left = tokio::time::timeout(self.timeout, when_done).await.map_err(|_| late())?;
        left.map_err(|_| late())
    }
}

#[derive(Debug)]
struct Settler(Arc<Deliveries>);

impl Settle for Settler {
    type Message = InFlightMessage;

    fn ack(&self, message: InFlightMessage) -> Result<()> {
        message.content.shard.finish(&message)
    }

    fn nack(&self, message: InFlightMessage, delay: Duration) -> Result<()> {
        self.0.give_back(message, delay);
        Ok(())
    }
}
