//! The port of retention: removal of expired rows.

use std::time::Duration;

use async_trait::async_trait;

use crate::{ArchivableLetters, HalfMessageDetail, MessageId, OutboxDetail, Result, RowId};

/// Removal of expired rows in small steps.
#[async_trait]
pub trait Housekeeping: ArchivableLetters {
    /// Removes at most `at_most` rows older than `age` and returns how many. Fewer than `at_most` means that none is
    /// left.
    async fn remove_expired(&self, what: Expiring, age: Duration, at_most: u64) -> Result<u64>;

    /// Returns the sent messages that [`remove_expired`](Self::remove_expired) would remove, so that they can be
    /// archived first.
    async fn old_sent(&self, age: Duration, at_most: u64) -> Result<Vec<OutboxDetail>>;

    /// Removes these sent messages and returns how many existed. Unsent messages stay.
    async fn remove_these_sent(&self, rows: &[RowId]) -> Result<u64>;

    /// Returns the half messages that [`remove_expired`](Self::remove_expired) would remove, the longest decided first,
    /// so that they can be archived first.
    async fn old_half_messages(&self, age: Duration, at_most: u64) -> Result<Vec<HalfMessageDetail>>;

    /// Removes these half messages and returns how many existed. Undecided ones stay, and so do contradicted ones that
    /// no person has acknowledged.
    async fn remove_these_half_messages(&self, ids: &[MessageId]) -> Result<u64>;
}

/// Rows that are removed after some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Expiring {
    /// Sent messages that the adapter keeps (`keep_sent`), from when they were sent.
    Sent,
    /// Inbox ids, except those of open dead letters of their group. A later duplicate of a removed id takes effect
    /// again.
    HandledIds,
    /// Ids that [`IdempotentAppend`](crate::IdempotentAppend) remembers. A later retry under a removed id is enqueued
    /// again.
    EnqueuedIds,
    /// Records of [`Deliveries`](crate::Deliveries) whose next attempt is overdue by this time, and those whose message
    /// is in the inbox.
    Retries,
    /// Dead letters, from when they are done, discarded or restored. The audit trail stays.
    DoneLetters,
    /// The sequence state of idle entities ([`Sequences`](crate::Sequences)), except those with an open dead letter.
    /// The next message of such an entity counts as its first.
    Sequences,
    /// Half messages, from when they were decided. Undecided ones stay, and so do contradicted ones that no person has
    /// acknowledged. A later prepare under a removed id is stored again.
    HalfMessages,
    /// Barrier rows, from when they were written. The age must exceed the longest time that a half message stays
    /// undecided: [`Barriers::ask_barrier`](crate::Barriers::ask_barrier) returns `None` for messages prepared before.
    Barriers,
    /// The stored answers of [idempotency records](crate::idempotency), from when their work was done. A later repeat
    /// learns that it was done, without the answer.
    IdempotencyAnswers,
    /// Idempotency records, from their last change: completed and released ones, expired tokens and windows, and
    /// crashed attempts that would be rerun. Uncertain ones stay. A later request under a removed key is new.
    IdempotencyRecords,
}

impl Expiring {
    /// Returns the name in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::HandledIds => "inbox",
            Self::EnqueuedIds => "enqueued_ids",
            Self::Retries => "retries",
            Self::DoneLetters => "dead_letters",
            Self::Sequences => "sequences",
            Self::HalfMessages => "half_messages",
            Self::Barriers => "barriers",
            Self::IdempotencyAnswers => "idempotency_answers",
            Self::IdempotencyRecords => "idempotency_records",
        }
    }
}
