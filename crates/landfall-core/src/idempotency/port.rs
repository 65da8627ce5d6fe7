//! The ports: a separate store, the record in the caller's transaction, and tokens.

use std::time::Duration;

use async_trait::async_trait;

use super::{
    Claim, Epoch, Fingerprint, Identity, Opened, Outcome, RecordFilter, RecordId, RecordRow, RecordStats, Resolution,
    Settled, Snapshot, Terms,
};
use crate::{Database, Result, Timestamp};

/// A store of records, apart from the work. A claim holds a lease on its record.
///
/// All times are the store's. What a call returns survives a crash of the store, if the store is durable at all.
#[async_trait]
pub trait IdempotencyRecords: Send + Sync {
    /// Claims the record of `identity`, or returns why not. Atomic: of concurrent claims at most one is
    /// [`Claim::Claimed`]. The fingerprint is compared first, also while an attempt is in flight.
    ///
    /// A released record is claimed again under a higher epoch, and so is one whose lease has expired under
    /// [`OnUnknown::Rerun`](super::OnUnknown::Rerun). The terms of an attempt decide what follows after it, not those
    /// of the next claim. The record of a token is claimed only if the token was issued and has not expired.
    ///
    /// Not idempotent: a claim whose answer is lost blocks the key until its lease expires.
    async fn claim_record(&self, identity: &Identity, fingerprint: &Fingerprint, terms: &Terms) -> Result<Claim>;

    /// Extends the lease of the attempt with this epoch, but not beyond its ceiling. Returns how long it lasts now, or
    /// `None` if the attempt has lost the record or reached its ceiling. An expired lease that no claim has taken over
    /// is extended too.
    async fn renew_record(&self, identity: &Identity, epoch: Epoch, lease: Duration) -> Result<Option<Duration>>;

    /// Records what became of the attempt with this epoch, and ends it. Idempotent for the same outcome.
    ///
    /// Also works after the lease has expired, unless another claim has taken the record over or a person has resolved
    /// it.
    async fn settle_record(&self, identity: &Identity, epoch: Epoch, outcome: &Outcome) -> Result<Settled>;

    /// Resolves an uncertain record on behalf of `actor`, and writes it to the audit trail if the store has one.
    /// Returns whether the record was uncertain. The attempt that left it can settle no more.
    async fn resolve_record(&self, id: RecordId, resolution: &Resolution, actor: &str) -> Result<bool>;

    /// Returns at most `limit` matching records, the newest first.
    async fn find_records(&self, filter: &RecordFilter, limit: usize) -> Result<Vec<RecordRow>>;

    async fn record_stats(&self) -> Result<RecordStats>;
}

/// One-time tokens, beside the records that consuming them claims.
#[async_trait]
pub trait OneTimeTokens: IdempotencyRecords {
    /// Issues the token of `identity` ([`Token::identity`](super::Token::identity)), which can be claimed for `ttl`.
    /// Returns when it expires. Durable before this returns.
    async fn issue_token(&self, identity: &Identity, ttl: Duration) -> Result<Timestamp>;
}

/// The record in the caller's transaction, with the work and its messages. A crash rolls all of it back.
pub trait RecordWriter: Database {
    /// Writes the record first in the caller's transaction. Waits for another open transaction with the same identity,
    /// so bound the time, and drop the transaction when it is over.
    ///
    /// [`Opened::Refused`] means that the work is not to be done. End the transaction with
    /// [`Database::flush`] before acting on it.
    fn open_record(
        &self,
        connection: &mut Self::Connection,
        identity: &Identity,
        fingerprint: &Fingerprint,
    ) -> impl Future<Output = Result<Opened>> + Send;

    /// Stores the answer of a record that the same transaction has opened.
    fn store_answer(
        &self,
        connection: &mut Self::Connection,
        identity: &Identity,
        answer: &Snapshot,
    ) -> impl Future<Output = Result<()>> + Send;
}
