//! The ports of the outbox: writing in the caller's transaction, relaying, and operations.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde::Serialize;

use crate::adapter::{Lease, LeaseName};
use crate::{Database, Error, ErrorCode, Key, Message, MessageId, Result, Timestamp, TopicName};

/// Writes messages into the outbox inside the caller's transaction.
pub trait OutboxWriter: Database {
    /// Enqueues `messages` in this order. They are published if and only if the transaction commits.
    ///
    /// Refuses messages over the limits (kind `Invalid`, nothing written) before calling the driver. Ids are not
    /// compared with earlier ones: a message enqueued twice under one id is published twice and takes effect once.
    fn enqueue(
        &self,
        connection: &mut Self::Connection,
        messages: &[Message],
    ) -> impl Future<Output = Result<()>> + Send;

    /// Enqueues and commits. An adapter may save a round trip: after a successful statement it need not check that the
    /// transaction is still usable.
    fn enqueue_and_commit(
        &self,
        mut transaction: Self::Transaction,
        messages: &[Message],
    ) -> impl Future<Output = Result<()>> + Send {
        async move {
            self.enqueue(&mut transaction, messages).await?;
            self.commit(transaction).await
        }
    }

    /// Wakes the relay after a commit. Never blocks and never fails. Only a hint: polling finds a commit without it.
    fn wake(&self);
}

/// A slice of the key space that one relay at a time works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Shard(pub u16);

impl Shard {
    /// The prefix of the lease names of shards.
    pub const LEASES: &'static str = "outbox/";

    pub fn lease_name(self) -> LeaseName {
        LeaseName(format!("{}{}", Self::LEASES, self.0))
    }

    pub fn from_lease(name: &LeaseName) -> Option<Shard> {
        name.0.strip_prefix(Self::LEASES)?.parse().ok().map(Shard)
    }
}

/// The number of an outbox row; grows with insertion, which is not commit order.
pub type RowId = i64;

/// A due message, as the relay reads it.
#[derive(Debug)]
pub struct OutboxEntry {
    pub row: RowId,
    pub shard: Shard,
    pub message_id: MessageId,
    /// Failed attempts so far.
    pub attempts: u32,
    /// An error if a SQL writer stored an invalid message (a header with a line break…). The relay parks it.
    pub message: Result<Message>,
}

/// The relay's decision about one entry.
#[derive(Debug, Clone)]
pub struct Settlement {
    pub row: RowId,
    pub shard: Shard,
    pub decision: Decision,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The broker accepted it: remove the row.
    Published,
    /// It failed: count the attempt and retry after the delay. Its key waits with it.
    Retry { after: Duration, error: String },
    /// It failed for the last time: make it a dead letter. With `holds_key`, its successors wait until it is redriven.
    /// Without, they continue.
    Park { code: ErrorCode, error: String, holds_key: bool },
}

/// The relay's view of the outbox.
#[async_trait]
pub trait OutboxQueue: Send + Sync {
    /// Commits `messages` in a transaction of its own, in this order, and wakes the relay. All or none.
    async fn append(&self, messages: &[Message]) -> Result<()>;

    /// Returns the number of shards. A key always belongs to the same shard.
    fn shards(&self) -> u16;

    /// Returns at most `limit` due, committed messages of the leased shards. Per topic and key they are in commit
    /// order; rows that become visible together are in insertion order.
    ///
    /// Excludes messages that wait for their next attempt or are parked, and every other message of the same topic and
    /// key. Never skips a row because a later one was read first. Reading changes nothing: an unsettled row is read
    /// again.
    ///
    /// Committed means on disk: a message that a crash of the server could still undo is not returned
    /// ([`Database::flush`](crate::Database::flush)).
    async fn next(&self, leases: &[Lease], limit: usize) -> Result<Vec<OutboxEntry>>;

    /// Applies `settlements` in one transaction under the epochs of the leases, and returns the changed rows.
    ///
    /// A row whose shard is no longer leased under that epoch stays unchanged. Such a row, and one that no longer
    /// exists, is missing from the result.
    async fn settle(&self, leases: &[Lease], settlements: &[Settlement]) -> Result<Vec<RowId>>;

    /// Waits until something may have been committed, at most for `at_most`.
    async fn wait(&self, at_most: Duration);
}

/// The outbox without order: any number of relays compete for rows and need no leases. The relay ensures that it never
/// runs together with relays that keep order.
#[async_trait]
pub trait CompetingQueue: Send + Sync {
    /// Locks at most `limit` due messages that are not locked elsewhere (`FOR UPDATE SKIP LOCKED`), oldest first,
    /// whatever their keys. Committed as for [`OutboxQueue::next`]. Kind `Unsupported` without
    /// [`DatabaseCapabilities::competing_relays`](crate::adapter::DatabaseCapabilities).
    async fn claim(&self, limit: usize) -> Result<Box<dyn Claim>>;
}

/// Messages locked by one open transaction.
#[async_trait]
pub trait Claim: Send {
    /// Takes the claimed messages; empty on a second call.
    fn take_entries(&mut self) -> Vec<OutboxEntry>;

    /// Applies `settlements` and commits. Rows without a settlement are unlocked unchanged. No lease is compared,
    /// because the rows stay locked. Dropping a claim, or a crash, unlocks all of it.
    async fn settle(self: Box<Self>, settlements: &[Settlement]) -> Result<()>;
}

/// Read access to the outbox for people.
#[async_trait]
pub trait OutboxView: Send + Sync {
    async fn stats(&self) -> Result<OutboxStats>;

    /// Returns at most `limit` matching rows, sorted by row.
    async fn list(&self, filter: &OutboxFilter, limit: usize) -> Result<Vec<OutboxRow>>;

    /// Returns every row with that id in full, sorted by row; empty if there is none.
    async fn show(&self, message_id: MessageId) -> Result<Vec<OutboxDetail>>;
}

/// Operations on the outbox. Every call writes an audit row with its actor.
#[async_trait]
pub trait OutboxControl: Send + Sync {
    /// Makes the `rows` that wait for their next attempt due now, and returns those it changed. Attempts are kept.
    async fn retry(&self, rows: &[RowId], actor: &str) -> Result<Vec<RowId>>;

    /// Parks the `rows` that have failed at least once (code `PARKED_BY_HAND`, the reason as error) and holds their
    /// keys. Returns those it changed. A pending row is refused, because the relay may be publishing it.
    async fn park(&self, rows: &[RowId], reason: &str, actor: &str) -> Result<Vec<RowId>>;

    /// Writes an audit row for an action that concerns no single message, such as the deletion of a topic. Its message
    /// id is nil.
    async fn record_action(&self, actor: &str, action: &str, detail: &str) -> Result<()>;
}

/// Selects messages; every field that is set must match.
#[derive(Debug, Clone, Default)]
pub struct OutboxFilter {
    /// `None` selects unsent messages: pending, waiting and retrying.
    pub state: Option<OutboxState>,
    pub message_id: Option<MessageId>,
    pub topic: Option<TopicName>,
    pub key: Option<Key>,
    /// Only rows above this one: the last row of the previous page.
    pub after: Option<RowId>,
}

/// The figures of `landfall outbox stats`. Every message counts in exactly one of them.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct OutboxStats {
    /// In the outbox and never failed.
    pub pending: u64,
    /// Age of the oldest message that is pending or retrying; 0 when there is none.
    pub oldest_seconds: f64,
    /// In the outbox after at least one failed attempt.
    pub retrying: u64,
    /// Parked by the relay and not yet redriven.
    pub parked: u64,
    /// Published since the tables were created.
    pub published: u64,
}

/// One row of `landfall outbox list`.
#[derive(Debug, Clone, Serialize)]
pub struct OutboxRow {
    pub row: RowId,
    pub message_id: MessageId,
    pub topic: TopicName,
    pub key: Option<Key>,
    pub state: OutboxState,
    pub attempts: u32,
    pub next_attempt: Option<Timestamp>,
    pub last_error: Option<String>,
    pub created_at: Timestamp,
    /// For a sent message that is retained: when it was sent.
    pub sent_at: Option<Timestamp>,
    pub payload_bytes: u64,
}

/// One complete row, for `landfall outbox show`.
#[derive(Debug, Clone, Serialize)]
pub struct OutboxDetail {
    #[serde(flatten)]
    pub row: OutboxRow,
    pub sequence: Option<i64>,
    pub kind: String,
    pub mode: String,
    /// The stored JSON object.
    pub headers: serde_json::Value,
    #[serde(skip)]
    pub payload: Bytes,
}

/// The state of a message in the outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OutboxState {
    /// Never failed, and not blocked.
    Pending,
    /// Never failed, but its key waits behind a failed message. Counts as pending.
    Waiting,
    /// Failed at least once, and waits for its next attempt.
    Retrying,
    /// A dead letter of the relay, not yet redriven.
    Parked,
    /// Sent and retained.
    Sent,
}

impl OutboxState {
    pub const ALL: [OutboxState; 5] = [Self::Pending, Self::Waiting, Self::Retrying, Self::Parked, Self::Sent];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Waiting => "waiting",
            Self::Retrying => "retrying",
            Self::Parked => "parked",
            Self::Sent => "sent",
        }
    }
}

impl std::str::FromStr for OutboxState {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            Error::invalid(format!("state {text:?} is none of pending, waiting, retrying, parked, sent"))
        })
    }
}

impl OutboxEntry {
    /// For adapters: wraps the error of an invalid row with its number.
    pub fn unreadable(row: RowId, error: Error) -> Error {
        Error::invalid(format!("outbox row {row} cannot be a message")).with_source(error)
    }
}
