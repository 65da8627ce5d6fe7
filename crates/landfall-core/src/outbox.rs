//! The ports of the outbox: one to write in the caller's transaction, one that the relay reads, one for people.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde::Serialize;

use crate::{Database, Error, ErrorCode, Key, Lease, LeaseName, Message, MessageId, Result, Timestamp, TopicName};

/// Puts messages into the outbox inside the caller's own transaction.
pub trait OutboxWriter: Database {
    /// Adds `messages` in this order. They are published if and only if the transaction commits.
    ///
    /// Refuses (kind `Invalid`, nothing written) what breaks the limits, before the driver is asked. Ids are not
    /// compared with earlier ones: a message enqueued twice under one id is published twice and takes effect once.
    fn enqueue(
        &self,
        connection: &mut Self::Connection,
        messages: &[Message],
    ) -> impl Future<Output = Result<()>> + Send;

    /// [`enqueue`](Self::enqueue) as the last act of a transaction, and its commit. An adapter may do it in fewer steps:
    /// after a statement that succeeded nobody has to ask whether the transaction is still sound.
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

    /// Says that something was committed, so that the relay looks at once. Never blocks, never fails, and is only a
    /// hint: a commit without it is found by the relay's polling.
    fn wake(&self);
}

/// A slice of the key space that one relay at a time works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Shard(pub u16);

impl Shard {
    /// The prefix of every shard's lease.
    pub const LEASES: &'static str = "outbox/";

    pub fn lease_name(self) -> LeaseName {
        LeaseName(format!("{}{}", Self::LEASES, self.0))
    }

    pub fn from_lease(name: &LeaseName) -> Option<Shard> {
        name.0.strip_prefix(Self::LEASES)?.parse().ok().map(Shard)
    }
}

/// A row's place in the outbox; grows with insertion, which is not the order of commits.
pub type RowId = i64;

/// A message that is due, as the relay gets it.
#[derive(Debug)]
pub struct OutboxEntry {
    pub row: RowId,
    pub shard: Shard,
    pub message_id: MessageId,
    /// Failed tries so far.
    pub attempts: u32,
    /// An error if what a foreign writer stored cannot be a message (a header with a line break…): it is parked.
    pub message: Result<Message>,
}

/// What the relay decided about one entry.
#[derive(Debug, Clone)]
pub struct Settlement {
    pub row: RowId,
    pub shard: Shard,
    pub decision: Decision,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The broker has it: the row goes.
    Published,
    /// It failed: counted, and due again after the delay; its key waits with it.
    Retry { after: Duration, error: String },
    /// It failed for the last time: becomes a dead letter. If it holds its key, what follows waits behind it until it is
    /// redriven; if not, it is skipped and its successors go on without it.
    Park { code: ErrorCode, error: String, holds_key: bool },
}

/// The relay's view of the outbox.
#[async_trait]
pub trait OutboxQueue: Send + Sync {
    /// Commits `messages` in a transaction of its own, in this order, and wakes the relay. All or none.
    async fn append(&self, messages: &[Message]) -> Result<()>;

    /// How many shards there are; a key always belongs to the same one.
    fn shards(&self) -> u16;

    /// At most `limit` committed messages of the leased shards that are due, in an order that is per topic and key
    /// the order of commits (of those present at one moment: the order of insertion).
    ///
    /// Leaves out a message that waits for its next attempt or is parked, and every other message of the same topic
    /// and key. Never skips a row because a later one was seen first. Reading changes nothing: what is not settled
    /// is read again.
    ///
    /// Committed means on the disk: a message whose transaction a crash of the server could still undo is not for others
    /// to see ([`Database::flush`](crate::Database::flush)).
    async fn next(&self, leases: &[Lease], limit: usize) -> Result<Vec<OutboxEntry>>;

    /// Carries out `settlements` in one transaction, under the leases' epochs, and answers with the rows it changed.
    ///
    /// A row whose shard's lease is not held under that epoch any more is left exactly as it is, and so is one that
    /// is no longer there; both are missing from the answer.
    async fn settle(&self, leases: &[Lease], settlements: &[Settlement]) -> Result<Vec<RowId>>;

    /// Returns when something may have been committed, or after `at_most`, whichever is first.
    async fn wait(&self, at_most: Duration);
}

/// The outbox without order, for those who do not need it: any number of relays compete for rows, and no lease is
/// taken. Never at the same time as relays that keep order; the relay sees to that.
#[async_trait]
pub trait CompetingQueue: Send + Sync {
    /// Locks at most `limit` messages that are due and that nobody else has locked (`FOR UPDATE SKIP LOCKED`), oldest
    /// first, whatever their keys; committed as for [`OutboxQueue::next`]. Kind `Unsupported` where the database has no
    /// such thing ([`DatabaseCapabilities::competing_relays`](crate::DatabaseCapabilities)).
    async fn claim(&self, limit: usize) -> Result<Box<dyn Claim>>;
}

/// Messages that are locked by one open transaction.
#[async_trait]
pub trait Claim: Send {
    /// What was claimed; empty the second time.
    fn take_entries(&mut self) -> Vec<OutboxEntry>;

    /// Carries out `settlements` and commits; what they do not name is as it was, and free again. No lease is compared:
    /// the rows have been locked all the time. Dropping a claim frees all of it, and so does a crash.
    async fn settle(self: Box<Self>, settlements: &[Settlement]) -> Result<()>;
}

/// What people ask the outbox.
#[async_trait]
pub trait OutboxView: Send + Sync {
    async fn stats(&self) -> Result<OutboxStats>;

    /// What matches, in order of row, at most `limit`.
    async fn list(&self, filter: &OutboxFilter, limit: usize) -> Result<Vec<OutboxRow>>;

    /// Every row of that id with everything in it, in order of row; empty where there is none (any more).
    async fn show(&self, message_id: MessageId) -> Result<Vec<OutboxDetail>>;
}

/// What people do to the outbox. Every call is in the audit trail under its actor's name.
#[async_trait]
pub trait OutboxControl: Send + Sync {
    /// Makes those of `rows` that wait for their next attempt due at once; their attempts stay as they are. Answers with
    /// the rows it changed.
    async fn retry(&self, rows: &[RowId], actor: &str) -> Result<Vec<RowId>>;

    /// Parks those of `rows` that have failed at least once, as if they had failed for the last time (code `PARKED_BY_HAND`,
    /// the reason as its error), with their keys held. Answers with the rows it changed: one that is pending is the
    /// relay's, which may be sending it this very moment.
    async fn park(&self, rows: &[RowId], reason: &str, actor: &str) -> Result<Vec<RowId>>;
}

/// What nobody needs any more goes, in steps that are small enough for nobody to notice. A step that answers with fewer
/// than `at_most` was the last one.
#[async_trait]
pub trait Housekeeping: Send + Sync {
    /// Removes sent messages that have been kept for longer than `age`.
    async fn remove_sent(&self, age: Duration, at_most: u64) -> Result<u64>;

    /// What [`remove_sent`](Self::remove_sent) would remove, for whoever wants to have it elsewhere first.
    async fn old_sent(&self, age: Duration, at_most: u64) -> Result<Vec<OutboxDetail>>;

    /// Removes these sent messages and answers with how many of them were there. What was not sent stays.
    async fn remove_these_sent(&self, rows: &[RowId]) -> Result<u64>;

    /// Forgets ids that were handled longer ago than `age`, but none that is still a dead letter of its group. From then on
    /// a copy of such a message would take effect again.
    async fn forget_handled(&self, age: Duration, at_most: u64) -> Result<u64>;

    /// Removes dead letters that have been done for longer than `age`. The audit trail stays.
    async fn remove_done_letters(&self, age: Duration, at_most: u64) -> Result<u64>;

    /// Forgets what was reached with entities ([`Sequences`](crate::Sequences)) of which nothing was applied for longer
    /// than `age`, but none of which a dead letter is open. The next message of such an entity is its first.
    async fn forget_sequences(&self, age: Duration, at_most: u64) -> Result<u64>;
}

/// Which messages; every field that is set must match.
#[derive(Debug, Clone, Default)]
pub struct OutboxFilter {
    /// Nothing means what is still to be sent: pending, waiting and retrying.
    pub state: Option<OutboxState>,
    pub message_id: Option<MessageId>,
    pub topic: Option<TopicName>,
    pub key: Option<Key>,
    /// Only rows above this one: the last row of the page before.
    pub after: Option<RowId>,
}

/// The figures of `landfall outbox stats`. Every message counts in exactly one of them.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct OutboxStats {
    /// In the outbox and never failed.
    pub pending: u64,
    /// Age of the oldest message that is pending or retrying; 0 when there is none.
    pub oldest_seconds: f64,
    /// In the outbox after at least one failed try.
    pub retrying: u64,
    /// Parked by the relay and not yet redriven.
    pub parked: u64,
    /// Published since the tables were made.
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
    /// When it was sent, of one that was sent and is kept.
    pub sent_at: Option<Timestamp>,
    pub payload_bytes: u64,
}

/// One row with everything in it, for `landfall outbox show`.
#[derive(Debug, Clone, Serialize)]
pub struct OutboxDetail {
    #[serde(flatten)]
    pub row: OutboxRow,
    pub sequence: Option<i64>,
    pub kind: String,
    pub mode: String,
    /// As the JSON object that was stored.
    pub headers: serde_json::Value,
    #[serde(skip)]
    pub payload: Bytes,
}

/// Where a message of the outbox is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OutboxState {
    /// Never failed, and nothing stands before it.
    Pending,
    /// Never failed, and its key waits behind a message that did. Counts as pending.
    Waiting,
    /// Failed at least once, and due again at its next attempt.
    Retrying,
    /// A dead letter of the relay that was not redriven yet.
    Parked,
    /// Sent, and kept for a while.
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

/// For adapters: the error of a row that cannot be a message, with the row named.
impl OutboxEntry {
    pub fn unreadable(row: RowId, error: Error) -> Error {
        Error::invalid(format!("outbox row {row} cannot be a message")).with_source(error)
    }
}
