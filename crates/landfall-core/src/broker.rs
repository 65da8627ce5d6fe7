//! The ports of a broker: publish, subscribe, and what people ask about topics.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;

use crate::{GroupName, Holder, Message, Outcome, Position, Result, Timestamp, TopicName};

/// Hands messages to a broker.
#[async_trait]
pub trait Publisher: Send + Sync {
    /// Publishes `batch` and answers with exactly one outcome per message, in the same order; an empty batch gives
    /// an empty answer. Never fails as a whole: what went wrong is told per message.
    ///
    /// Order: of one topic and key, accepted messages stand in the broker in the order given here, and after one
    /// that was not accepted no later one of the same topic and key in this batch is accepted
    /// ([`Outcome::behind_predecessor`]). Different keys do not hold each other up.
    ///
    /// Durability: `Accepted` means what the adapter's documentation says "accepted" means.
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome>;

    /// A publisher to the same broker that speaks as `holder` and that others can silence; `None` where the broker or its
    /// options do not have that.
    fn fenced(&self, _holder: &Holder) -> Option<Arc<dyn FencedPublisher>> {
        None
    }
}

/// A publisher that others can silence, for a relay that may be paused with messages in hand.
///
/// Nothing of a batch can be read before all of it was taken: whoever is silenced in the middle leaves no part behind.
#[async_trait]
pub trait FencedPublisher: Publisher {
    /// Begins anew if it has to: after it was silenced, after trouble, and the first time. `publish` never does that by
    /// itself, so a relay that begins and *then* looks at its leases knows that whoever takes one of them over later
    /// silences what it read under it.
    async fn begin(&self) -> Result<()>;

    /// Silences `holder`: what it handed over and was not answered for does not enter the broker any more, and neither
    /// does what it hands over before it begins anew. May be called for one who is gone or who never published.
    async fn fence(&self, holder: &Holder) -> Result<()>;
}

/// One member of a group on one topic.
#[async_trait]
pub trait Subscriber: Send {
    /// The next delivery; waits for one. `None` after the broker was closed.
    ///
    /// Per topic and key in the order published, except that a delivery which was given back comes again later.
    /// Cancel-safe: dropping the future loses nothing.
    async fn next(&mut self) -> Result<Option<Delivery>>;

    /// Makes what was acknowledged durable and leaves the group. What is still unacknowledged is delivered again to
    /// the next member.
    async fn close(self: Box<Self>) -> Result<()>;
}

/// A message that this consumer has to acknowledge. Dropping it unacknowledged means that it is delivered again.
#[derive(Debug)]
pub struct Delivery {
    /// An error if what stands in the broker cannot be a message.
    pub message: Result<Message>,
    pub position: Position,
    acknowledge: Box<dyn Acknowledge>,
}

impl Delivery {
    pub fn new(message: Result<Message>, position: Position, acknowledge: Box<dyn Acknowledge>) -> Self {
        Self { message, position, acknowledge }
    }

    /// Finished. Brokers with offsets commit only the contiguous finished prefix, so an acknowledgement out of order
    /// is safe. It may become durable a little later: after a crash a finished message may be delivered again.
    pub async fn ack(self) -> Result<()> {
        self.acknowledge.ack().await
    }

    /// Not finished: deliver it again, not before `delay`.
    pub async fn nack(self, delay: Duration) -> Result<()> {
        self.acknowledge.nack(delay).await
    }

    /// The message apart from its acknowledgement.
    pub fn into_parts(self) -> (Result<Message>, Position, Box<dyn Acknowledge>) {
        (self.message, self.position, self.acknowledge)
    }
}

/// What an adapter puts behind a [`Delivery`]. Its `Drop` must give the message back if neither method ran.
#[async_trait]
pub trait Acknowledge: Send + std::fmt::Debug {
    async fn ack(self: Box<Self>) -> Result<()>;
    async fn nack(self: Box<Self>, delay: Duration) -> Result<()>;
}

/// A broker as the daemon picks it by URL.
#[async_trait]
pub trait Broker: Send + Sync {
    fn capabilities(&self) -> BrokerCapabilities;

    fn publisher(&self) -> Arc<dyn Publisher>;

    /// Joins `group` on `topic`. A group that was never seen starts at the beginning: what was published before the
    /// first consumer came is not lost on it.
    async fn subscribe(&self, topic: &TopicName, group: &GroupName) -> Result<Box<dyn Subscriber>>;

    /// Every topic, by name.
    async fn topics(&self) -> Result<Vec<TopicInfo>>;

    /// Reads without joining a group and without committing anything.
    async fn read(&self, topic: &TopicName, from: StartAt) -> Result<Box<dyn TopicReader>>;
}

/// What a broker can do; the conformance suites pick their tests by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokerCapabilities {
    /// Messages of one key are delivered in the order published.
    pub ordered_by_key: bool,
    /// What was accepted is there after the broker was stopped and started.
    pub durable: bool,
    /// `nack` keeps its delay.
    pub delayed_redelivery: bool,
    /// What was published stays for a while, so that a group that comes later starts at the beginning, positions mean
    /// something, and [`Broker::read`] works. Where it does not, a message reaches the groups that were there when it
    /// was published, and is refused (and may be tried later) while there is none.
    pub replay: bool,
    /// Several groups on one topic each get everything. Where they do not, the members of all groups share one queue.
    pub groups: bool,
    /// A message with the same [`wire::broker_id`](crate::wire::broker_id) as one accepted a moment before is accepted
    /// and not stored again.
    pub deduplicates: bool,
    /// The largest payload that is taken with a few headers beside it, where that is less than Landfall's own limits
    /// allow. A larger one is refused for good as [`TOO_LARGE`](crate::ErrorCode::TOO_LARGE).
    pub payload_bytes: Option<usize>,
}

impl BrokerCapabilities {
    /// Everything: what the embedded log can do.
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

/// Making topics on a broker whose topics are made on purpose.
#[async_trait]
pub trait TopicAdministration: Send + Sync {
    /// Makes `topic`, with as many partitions as asked for or as the adapter's options say, and answers whether it was
    /// made. One that is there already is left as it is, if it has as many partitions (kind `Conflict` if not).
    async fn create_topic(&self, topic: &TopicName, partitions: Option<u32>) -> Result<bool>;

    /// Removes `topic` with everything in it, and answers whether it was there.
    async fn delete_topic(&self, topic: &TopicName) -> Result<bool>;
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TopicInfo {
    pub topic: TopicName,
    pub partitions: u32,
    /// Messages stored, over all partitions.
    pub messages: u64,
    /// What they take, where the broker tells.
    pub bytes: Option<u64>,
}

/// Where a reader begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartAt {
    Beginning,
    End,
    /// At this offset in every partition.
    Offset(u64),
    /// At the first message that the broker took at this time or later, in every partition; at the end if there is
    /// none. A broker without an index of times may have to read everything before it.
    Time(Timestamp),
}

#[async_trait]
pub trait TopicReader: Send {
    /// What is there beyond the last call, in offset order per partition, at most `limit`; empty at the end.
    async fn read(&mut self, limit: usize) -> Result<Vec<StoredMessage>>;
}

#[derive(Debug)]
pub struct StoredMessage {
    pub position: Position,
    /// An error if what stands there cannot be a message.
    pub message: Result<Message>,
}
