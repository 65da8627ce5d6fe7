//! The subscriber, and how its deliveries are settled.

pub(crate) mod acks;
pub(crate) mod member;
pub(crate) mod warm_up;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use landfall_broker_toolkit::{InFlight, InFlightMessage, Receipt, Settle};
use landfall_core::adapter::{Delivery, Subscriber};
use landfall_core::{Error, ErrorKind, GroupName, Position, Result, TopicName};
use lapin::BasicProperties;
use lapin::types::ShortString;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::config::Options;
use crate::link::Link;
use crate::names::GroupNames;
use crate::wire;
use member::Member;

/// The messages in flight by delivery tag, all in partition 0: a generation is a channel. At most as many as the server
/// sends, which `in_flight` limits.
///
/// A message that is given back stays here until its delay is over, and unacknowledged for the server: the server would
/// count a requeued message as redelivered and deliver it at once. If this member ends, another one gets it.
pub(crate) type Deliveries = InFlight<u64, Stored>;

/// A message as the server sent it.
#[derive(Debug)]
pub(crate) struct Stored {
    /// The number of its queue.
    pub(crate) partition: u32,
    pub(crate) routing_key: ShortString,
    pub(crate) properties: BasicProperties,
    pub(crate) payload: Bytes,
}

/// A finished delivery on its way to the member.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) generation: u64,
    pub(crate) tag: u64,
}

#[derive(Debug)]
pub(crate) struct RabbitSubscriber {
    topic: TopicName,
    settler: Arc<Settler>,
    member: JoinHandle<Result<()>>,
    /// Ends the member when the subscriber is dropped.
    stop: DropGuard,
}

impl RabbitSubscriber {
    pub(crate) async fn join(
        options: Arc<Options>,
        link: Arc<Link>,
        topic: &TopicName,
        group: &GroupName,
    ) -> Result<Self> {
        let names = GroupNames::new(&options.prefix, topic, group, options.partitions)?;
        let (sender, finished) = unbounded_channel();
        let (deliveries, stop) = (Arc::new(Deliveries::default()), CancellationToken::new());
        let settler = Arc::new(Settler { deliveries: deliveries.clone(), finished: sender });
        let topic = topic.clone();
        let member = Member { options, link, topic: topic.clone(), names, deliveries, finished, stop: stop.clone() };
        let attached = member.attach().await?;
        Ok(Self { topic, settler, member: tokio::spawn(member.run(attached)), stop: stop.drop_guard() })
    }
}

#[async_trait]
impl Subscriber for RabbitSubscriber {
    async fn next(&mut self) -> Result<Option<Delivery>> {
        let Some(message) = self.settler.deliveries.next().await? else { return Ok(None) };
        let Stored { partition, routing_key, properties, payload } = &message.content;
        let position = Position { partition: *partition, offset: message.offset };
        let decoded = wire::message(&self.topic, routing_key.as_str(), properties, payload.clone())
            .map_err(|error| error.with_payload(payload.clone()));
        Ok(Some(Delivery::new(decoded, position, Receipt::new(self.settler.clone(), message))))
    }

    async fn close(self: Box<Self>) -> Result<()> {
        let Self { stop, member, .. } = *self;
        drop(stop);
        let internal = |error| Error::new(ErrorKind::Internal, "the member of the group panicked").with_source(error);
        member.await.map_err(internal)?
    }
}

#[derive(Debug)]
struct Settler {
    deliveries: Arc<Deliveries>,
    finished: UnboundedSender<Finished>,
}

impl Settle for Settler {
    type Message = InFlightMessage<u64, Stored>;

    /// The member acknowledges it to the server a moment later, together with others.
    fn ack(&self, message: Self::Message) -> Result<()> {
        self.deliveries.finish(&message).ok_or_else(channel_gone)?;
        let finished = Finished { generation: message.generation(), tag: message.offset };
        self.finished.send(finished).map_err(|_| channel_gone())
    }

    fn nack(&self, message: Self::Message, delay: Duration) -> Result<()> {
        if !self.deliveries.is_current(&message) {
            return Err(channel_gone());
        }
        self.deliveries.give_back(message, delay);
        Ok(())
    }
}

fn channel_gone() -> Error {
    Error::new(ErrorKind::Unavailable, "the channel it was delivered on is gone; the message is delivered again")
}
