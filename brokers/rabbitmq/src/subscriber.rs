//! The subscriber, and the acknowledgement behind each delivery.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{Acknowledge, Delivery, Error, ErrorKind, GroupName, Result, Subscriber, TopicName};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::config::Options;
use crate::link::Link;
use crate::member::Member;
use crate::names::GroupNames;

/// Not more than the server has sent, which is bounded by `in_flight`.
#[derive(Debug)]
pub(crate) struct RabbitSubscriber {
    arrived: UnboundedReceiver<Arrived>,
    generation: Arc<AtomicU64>,
    member: JoinHandle<Result<()>>,
    /// Ends the member when the subscriber is dropped.
    stop: DropGuard,
}

/// A delivery on its way to the subscriber.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) generation: u64,
    pub(crate) delivery: Result<Delivery>,
}

/// What became of a delivery, on its way to the member.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) generation: u64,
    pub(crate) tag: u64,
    pub(crate) verdict: Verdict,
}

#[derive(Debug)]
pub(crate) enum Verdict {
    Finished,
    GivenBack(Instant),
}

impl RabbitSubscriber {
    pub(crate) async fn join(
        options: Arc<Options>,
        link: Arc<Link>,
        topic: &TopicName,
        group: &GroupName,
    ) -> Result<Self> {
        let names = GroupNames::new(&options.prefix, topic, group, options.partitions)?;
        let (arriving, arrived) = unbounded_channel();
        let (settling, settled) = unbounded_channel();
        let (generation, stop) = (Arc::new(AtomicU64::new(0)), CancellationToken::new());
        let member = Member {
            options,
            link,
            topic: topic.clone(),
            names,
            generation: generation.clone(),
            arrived: arriving,
            settled,
            settling,
            stop: stop.clone(),
        };
        let attached = member.attach().await?;
        Ok(Self { arrived, generation, member: tokio::spawn(member.run(attached)), stop: stop.drop_guard() })
    }
}

#[async_trait]
impl Subscriber for RabbitSubscriber {
    async fn next(&mut self) -> Result<Option<Delivery>> {
        while let Some(Arrived { generation, delivery }) = self.arrived.recv().await {
            // What came over a connection that is gone comes again over the next.
            if delivery.is_err() || generation == self.generation.load(Ordering::SeqCst) {
                return delivery.map(Some);
            }
        }
        Ok(None)
    }

    async fn close(self: Box<Self>) -> Result<()> {
        let Self { stop, member, .. } = *self;
        drop(stop);
        let internal = |error| Error::new(ErrorKind::Internal, "the member of the group panicked").with_source(error);
        member.await.map_err(internal)?
    }
}

/// Stands behind a delivery; dropped unsettled, it gives the message back.
#[derive(Debug)]
pub(crate) struct Receipt {
    generation: u64,
    tag: u64,
    /// Taken when it is settled.
    settling: Option<UnboundedSender<Settled>>,
    current: Arc<AtomicU64>,
}

impl Receipt {
    pub(crate) fn new(generation: u64, tag: u64, settling: UnboundedSender<Settled>, current: Arc<AtomicU64>) -> Self {
        Self { generation, tag, settling: Some(settling), current }
    }

    fn settle(&mut self, verdict: Verdict) -> Result<()> {
        let gone =
            || Error::new(ErrorKind::Unavailable, "the channel it came over is gone; it will be delivered again");
        let Some(settling) = self.settling.take() else { return Ok(()) };
        if self.current.load(Ordering::SeqCst) != self.generation {
            return Err(gone());
        }
        let settled = Settled { generation: self.generation, tag: self.tag, verdict };
        settling.send(settled).map_err(|_| gone())
    }
}

#[async_trait]
impl Acknowledge for Receipt {
    /// Told to the server a moment later, together with others.
    async fn ack(mut self: Box<Self>) -> Result<()> {
        self.settle(Verdict::Finished)
    }

    async fn nack(mut self: Box<Self>, delay: Duration) -> Result<()> {
        // No clock counts further than this, and no member lives that long.
        let delay = delay.min(Duration::from_secs(365 * 24 * 3600));
        self.settle(Verdict::GivenBack(Instant::now() + delay))
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        // If the channel is gone the message has been given back already.
        let _ = self.settle(Verdict::GivenBack(Instant::now()));
    }
}
