//! The ports of a broker: publishing, subscribing and topics.

pub(crate) mod outcome;
pub(crate) mod url;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;

use crate::{GroupName, Holder, Message, Outcome, Position, Result, Timestamp, TopicName};

/// Publishes messages to a broker.
#[async_trait]
pub trait Publisher: Send + Sync {
    /// Publishes `batch` and returns exactly one outcome per message, in the same order. An empty batch returns an
    /// empty vector. Never fails as a whole: each message reports its own error.
    ///
    /// Order: accepted messages of one topic and key are stored in the given order. After a message that was not
    /// accepted, no later one of the same topic and key in this batch is accepted ([`Outcome::behind_predecessor`]).
    /// Different keys do not block each other.
    ///
    /// Durability: each adapter documents what `Accepted` means.
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome>;

    /// Returns a publisher that acts as `holder` and that a successor can fence; `None` if the broker or its options do
    /// not support fencing.
    fn fenced(&self, _holder: &Holder) -> Option<Arc<dyn FencedPublisher>> {
        None
    }
}

/// A publisher that a successor can fence, for a relay that may be paused with messages in flight.
///
/// A batch is atomic for readers: a publisher that is fenced in the middle leaves no part of it behind.
#[async_trait]
pub trait FencedPublisher: Publisher {
    /// Starts a producer if there is none: the first time, after an error, and after it was fenced.
    ///
    /// `publish` never starts one. A relay begins and *then* checks its leases, so a later holder of a lease fences
    /// everything that this relay read under it.
    async fn begin(&self) -> Result<()>;

    /// Fences `holder`: its unanswered messages no longer enter the broker, and neither does anything it publishes
    /// before its next `begin`. Harmless for a holder that is gone or never published.
    async fn fence(&self, holder: &Holder) -> Result<()>;
}

/// One member of a group on one topic.
#[async_trait]
pub trait Subscriber: Send {
    /// Waits for the next delivery. Returns `None` after the broker was closed.
    ///
    /// Order: per topic and key as published, except that a delivery given back is redelivered later.
    /// Cancellation-safe: dropping the future loses nothing.
    async fn next(&mut self) -> Result<Option<Delivery>>;

    /// Makes acknowledgements durable and leaves the group. Unacknowledged deliveries go to the next member.
    async fn close(self: Box<Self>) -> Result<()>;
}

/// A message that the consumer has to acknowledge. Dropping it unacknowledged causes redelivery.
#[derive(Debug)]
pub struct Delivery {
    /// An error if the stored bytes are not a valid message; it carries the payload, unless the broker's client lost it
    /// ([`Error::payload`](crate::Error::payload)).
    pub message: Result<Message>,
    pub position: Position,
    acknowledge: Box<dyn Acknowledge>,
}

impl Delivery {
    pub fn new(message: Result<Message>, position: Position, acknowledge: Box<dyn Acknowledge>) -> Self {
        Self { message, position, acknowledge }
    }

    /// Acknowledges the message. Brokers with offsets commit only the contiguous finished prefix, so acknowledging out
    /// of order is safe. It may become durable later: after a crash a finished message may be redelivered.
    pub async fn ack(self) -> Result<()> {
        self.acknowledge.ack().await
    }

    /// Gives the message back for redelivery after `delay`.
    pub async fn nack(self, delay: Duration) -> Result<()> {
        self.acknowledge.nack(delay).await
    }

    /// Splits the message from its acknowledgement.
    pub fn into_parts(self) -> (Result<Message>, Position, Box<dyn Acknowledge>) {
        (self.message, self.position, self.acknowledge)
    }
}

/// The adapter's side of a [`Delivery`]. Its `Drop` must give the message back if neither method ran.
#[async_trait]
pub trait Acknowledge: Send + std::fmt::Debug {
    async fn ack(self: Box<Self>) -> Result<()>;
    async fn nack(self: Box<Self>, delay: Duration) -> Result<()>;
}

/// A broker, as the daemon selects it by URL.
#[async_trait]
pub trait Broker: Send + Sync {
    fn capabilities(&self) -> BrokerCapabilities;

    fn publisher(&self) -> Arc<dyn Publisher>;

    /// Joins `group` on `topic`. A new group starts at the beginning, so it also gets messages published before its
    /// first member joined.
    async fn subscribe(&self, topic: &TopicName, group: &GroupName) -> Result<Box<dyn Subscriber>>;

    /// Asks the broker whether it responds and accepts the credentials. An error of the kind `Unavailable` may pass.
    async fn ping(&self) -> Result<()> {
        self.topics().await.map(drop)
    }

    /// Lists all topics, sorted by name.
    async fn topics(&self) -> Result<Vec<TopicInfo>>;

    /// Reads without joining a group and without committing anything.
    async fn read(&self, topic: &TopicName, from: StartAt) -> Result<Box<dyn TopicReader>>;
}

/// What a broker supports; selects the cases of the conformance suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokerCapabilities {
    /// Messages of one key are delivered in the order published.
    pub ordered_by_key: bool,
    /// Accepted messages survive a restart of the broker.
    pub durable: bool,
    /// `nack` honours its delay.
    pub delayed_redelivery: bool,
    /// The broker retains messages: a new group starts at the beginning, positions are stable and [`Broker::read`]
    /// works. Without it, a message reaches the groups that exist when it is published. While there is no group it is
    /// refused, retriably.
    pub replay: bool,
    /// Each group of a topic gets every message. Without it, the members of all groups share one queue.
    pub groups: bool,
    /// A message whose [`wire::broker_id`](crate::wire::broker_id) was accepted shortly before is accepted and not
    /// stored again.
    pub deduplicates: bool,
    /// The largest payload with a few headers, where that is below Landfall's own limit. A larger one is refused
    /// permanently as [`TOO_LARGE`](crate::ErrorCode::TOO_LARGE).
    pub payload_bytes: Option<usize>,
}

impl BrokerCapabilities {
    /// Everything: the capabilities of the embedded log.
    pub const ALL: Self = Self {
        ordered_by_key: true,
        durable: true,
        delayed_redelivery: true,
        replay: true,
        groups: true,
        deduplicates: true,
        payload_bytes: None,
    };
}

/// Creation and deletion of topics, for brokers that do not create them on first use.
#[async_trait]
pub trait TopicAdministration: Send + Sync {
    /// Creates `topic` with the given number of partitions, or the adapter's default, and returns whether it was new.
    /// An existing topic stays as it is; kind `Conflict` if its number of partitions differs.
    async fn create_topic(&self, topic: &TopicName, partitions: Option<u32>) -> Result<bool>;

    /// Deletes `topic` and its messages, and returns whether it existed.
    async fn delete_topic(&self, topic: &TopicName) -> Result<bool>;
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TopicInfo {
    pub topic: TopicName,
    pub partitions: u32,
    /// Stored messages in all partitions.
    pub messages: u64,
    /// Their size, where the broker reports it.
    pub bytes: Option<u64>,
}

/// Where a reader starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartAt {
    Beginning,
    End,
    /// At this offset in every partition.
    Offset(u64),
    /// At the first message that the broker stored at this time or later, in every partition; at the end if there is
    /// none. A broker without a time index may have to read everything before it.
    Time(Timestamp),
}

#[async_trait]
pub trait TopicReader: Send {
    /// Returns at most `limit` messages that follow the last call, in offset order per partition; empty at the end.
    async fn read(&mut self, limit: usize) -> Result<Vec<StoredMessage>>;
}

#[derive(Debug)]
pub struct StoredMessage {
    pub position: Position,
    /// An error if the stored bytes are not a valid message.
    pub message: Result<Message>,
}
