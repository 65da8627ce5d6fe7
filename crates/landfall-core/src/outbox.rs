//! The ports of the outbox: one to write in the caller's transaction, one that the relay reads, one for people.

use std::time::Duration;

use async_trait::async_trait;
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

    pub fn of_lease(name: &LeaseName) -> Option<Shard> {
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
    /// It failed for the last time: becomes a dead letter, and its key waits behind it until it is redriven.
    Park { code: ErrorCode, error: String },
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
    async fn next(&self, leases: &[Lease], limit: usize) -> Result<Vec<OutboxEntry>>;

    /// Carries out `settlements` in one transaction, under the leases' epochs, and answers with the rows it changed.
    ///
    /// A row whose shard's lease is not held under that epoch any more is left exactly as it is, and so is one that
    /// is no longer there; both are missing from the answer.
    async fn settle(&self, leases: &[Lease], settlements: &[Settlement]) -> Result<Vec<RowId>>;

    /// Returns when something may have been committed, or after `at_most`, whichever is first.
    async fn wait(&self, at_most: Duration);
}

/// What people ask the outbox.
#[async_trait]
pub trait OutboxView: Send + Sync {
    async fn stats(&self) -> Result<OutboxStats>;

    /// What is in the outbox, oldest first, at most `limit` rows after `after`.
    async fn list(&self, after: Option<RowId>, limit: usize) -> Result<Vec<OutboxRow>>;
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
    pub payload_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OutboxState {
    Pending,
    Retrying,
}

/// For adapters: the error of a row that cannot be a message, with the row named.
impl OutboxEntry {
    pub fn unreadable(row: RowId, error: Error) -> Error {
        Error::invalid(format!("outbox row {row} cannot be a message")).with_source(error)
    }
}
