//! One member of a group, as the consumer sees it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{Acknowledge, Delivery, Error, ErrorKind, GroupName, Result, Subscriber, TopicName};
use tokio::sync::{mpsc, oneshot};

use crate::broker::Nats;
use crate::group::Membership;
use crate::names;
use crate::shard::{Content, Shard};
use crate::wire;

#[derive(Debug)]
pub(crate) struct Member {
    topic: TopicName,
    ready: mpsc::UnboundedReceiver<(Arc<Shard>, u64)>,
    /// Dropped or used, it ends the membership; the answer says that everything is left in order.
    leave: Option<oneshot::Sender<oneshot::Sender<()>>>,
    patience: Duration,
}

impl Member {
    /// Joins in the background: a topic that is not there yet, or a server, is waited for.
    pub(crate) fn join(broker: &Nats, topic: &TopicName, group: &GroupName) -> Result<Self> {
        broker.names.stream(topic)?;
        names::consumer(group, u32::MAX, u64::MAX)?;
        let (queue, ready) = mpsc::unbounded_channel();
        let (leave, left) = oneshot::channel();
        let membership = Membership::new(broker.clone(), topic.clone(), group.clone(), queue);
        tokio::spawn(membership.run(left));
        Ok(Self { topic: topic.clone(), ready, leave: Some(leave), patience: broker.options.timeout * 3 })
    }
}

#[async_trait]
impl Subscriber for Member {
    async fn next(&mut self) -> Result<Option<Delivery>> {
        loop {
            let Some((shard, sequence)) = self.ready.recv().await else { return Ok(None) };
            // Given to somebody else while it waited here.
            let Some((content, stored, position)) = shard.take_out(sequence) else { continue };
            let receipt = Receipt { shard: Some(shard), sequence };
            let message = match &*content {
                Content::Message(raw) => wire::message(&self.topic, stored, raw.headers.as_ref(), raw.payload.clone()),
                Content::Unreadable(why) => Err(Error::invalid(why.as_str())),
            };
            return Ok(Some(Delivery::new(message, position, Box::new(receipt))));
        }
    }

    async fn close(mut self: Box<Self>) -> Result<()> {
        let Some(leave) = self.leave.take() else { return Ok(()) };
        let (done, when_done) = oneshot::channel();
        if leave.send(done).is_err() {
            return Ok(());
        }
        let late = || Error::new(ErrorKind::Unavailable, "the group was not left in time; its shards are taken over");
        let left = tokio::time::timeout(self.patience, when_done).await.map_err(|_| late())?;
        left.map_err(|_| late())
    }
}

/// Stands behind a delivery; dropped unsettled, it gives the message back.
#[derive(Debug)]
struct Receipt {
    /// Taken when it is settled.
    shard: Option<Arc<Shard>>,
    sequence: u64,
}

#[async_trait]
impl Acknowledge for Receipt {
    async fn ack(mut self: Box<Self>) -> Result<()> {
        self.shard.take().map_or(Ok(()), |shard| shard.finish(self.sequence))
    }

    async fn nack(mut self: Box<Self>, delay: Duration) -> Result<()> {
        let Some(shard) = self.shard.take() else { return Ok(()) };
        let sequence = self.sequence;
        if delay.is_zero() {
            shard.give_back(sequence);
        } else {
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                shard.give_back(sequence);
            });
        }
        Ok(())
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if let Some(shard) = self.shard.take() {
            shard.give_back(self.sequence);
        }
    }
}
