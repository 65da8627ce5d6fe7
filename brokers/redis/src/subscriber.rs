//! One member of a group on one topic.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use landfall_broker_toolkit::{InFlight, InFlightMessage, Receipt, Settle};
use landfall_core::adapter::{Delivery, Subscriber};
use landfall_core::{Error, ErrorKind, GroupName, Position, Result, TopicName};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::broker::Redis;
use crate::entry::{Entry, EntryId};
use crate::group::member::Member;
use crate::wire;

/// The entries in flight; a partition is a shard.
pub(crate) type Deliveries = InFlight<EntryId, Entry>;

/// Finished entries on their way to Redis.
pub(crate) type Finished = mpsc::UnboundedReceiver<(u32, EntryId)>;

/// Delivers what a background task fetches, so that cancelling `next` loses nothing.
#[derive(Debug)]
pub(crate) struct RedisSubscriber {
    topic: TopicName,
    settler: Arc<Settler>,
    stop: CancellationToken,
    member: Option<JoinHandle<Result<()>>>,
}

impl RedisSubscriber {
    pub(crate) async fn join(redis: &Redis, topic: &TopicName, group: &GroupName) -> Result<Self> {
        let deliveries = Arc::new(Deliveries::default());
        let (finished, receiver) = mpsc::unbounded_channel();
        let mut member = Member::new(redis, topic, group, Arc::clone(&deliveries));
        member.prepare().await?;
        let stop = CancellationToken::new();
        let member = tokio::spawn(member.run(receiver, stop.clone()));
        let settler = Arc::new(Settler { deliveries, finished });
        Ok(Self { topic: topic.clone(), settler, stop, member: Some(member) })
    }

    fn stop(&self) {
        drop(self.settler.deliveries.close());
        self.stop.cancel();
    }
}

#[async_trait]
impl Subscriber for RedisSubscriber {
    async fn next(&mut self) -> Result<Option<Delivery>> {
        let Some(entry) = self.settler.deliveries.next().await? else { return Ok(None) };
        let position = Position { partition: entry.partition, offset: entry.offset.offset() };
        let message = wire::message(&self.topic, &entry.content);
        Ok(Some(Delivery::new(message, position, Receipt::new(self.settler.clone(), entry))))
    }

    async fn close(mut self: Box<Self>) -> Result<()> {
        self.stop();
        match self.member.take() {
            Some(member) => member.await.map_err(|error| {
                Error::new(ErrorKind::Internal, "the task of a subscriber panicked").with_source(error)
            })?,
            None => Ok(()),
        }
    }
}

impl Drop for RedisSubscriber {
    /// The task runs until it has acknowledged what was finished and left the group.
    fn drop(&mut self) {
        self.stop();
    }
}

#[derive(Debug)]
struct Settler {
    deliveries: Arc<Deliveries>,
    finished: mpsc::UnboundedSender<(u32, EntryId)>,
}

impl Settle for Settler {
    type Message = InFlightMessage<EntryId, Entry>;

    /// Redis is informed a moment later, together with other entries, and even if the stream has moved to another
    /// member: the entry is finished, and that stays true.
    fn ack(&self, entry: Self::Message) -> Result<()> {
        self.deliveries.finish(&entry);
        let InFlightMessage { partition, offset: id, .. } = entry;
        self.finished.send((partition, id)).map_err(|_| {
            let reason = "is delivered again, since its subscriber has left the group";
            Error::new(ErrorKind::Conflict, format!("entry {id} of partition {partition} {reason}"))
        })
    }

    fn nack(&self, entry: Self::Message, delay: Duration) -> Result<()> {
        self.deliveries.give_back(entry, delay);
        Ok(())
    }
}
