//! Counts what callers do that claim and settle records themselves, such as services in other languages.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use landfall_core::idempotency::{
    Claim, Epoch, Fingerprint, IdempotencyRecords, Identity, OneTimeTokens, Outcome, RecordFilter, RecordId, RecordRow,
    RecordStats, Resolution, Settled, Terms,
};
use landfall_core::{Result, Timestamp};

use super::counters::{Counted, count, register};

/// A store whose calls are counted by business type, in `landfall_idempotency_total`.
///
/// [`Idempotency`](super::Idempotency) counts by itself; give it the store without this.
#[derive(Clone)]
pub struct CountedRecords(Arc<dyn OneTimeTokens>);

impl CountedRecords {
    pub fn new(records: Arc<dyn OneTimeTokens>) -> Self {
        Self(records)
    }
}

#[async_trait]
impl IdempotencyRecords for CountedRecords {
    async fn claim_record(&self, identity: &Identity, fingerprint: &Fingerprint, terms: &Terms) -> Result<Claim> {
        register(identity.business_type());
        let claim = self.0.claim_record(identity, fingerprint, terms).await;
        let result = match &claim {
            Ok(Claim::Claimed { .. }) => return claim,
            Ok(Claim::Completed(_)) => Counted::Replayed,
            Ok(Claim::InFlight { .. } | Claim::NotIssued) => Counted::Conflict,
            Ok(Claim::Mismatch) => Counted::Mismatch,
            Ok(Claim::Uncertain) => Counted::Uncertain,
            Err(_) => Counted::StoreError,
        };
        count(result, identity.business_type());
        claim
    }

    async fn renew_record(&self, identity: &Identity, epoch: Epoch, lease: Duration) -> Result<Option<Duration>> {
        self.0.renew_record(identity, epoch, lease).await
    }

    async fn settle_record(&self, identity: &Identity, epoch: Epoch, outcome: &Outcome) -> Result<Settled> {
        let settled = self.0.settle_record(identity, epoch, outcome).await;
        let result = match (&settled, outcome) {
            (Ok(Settled::Recorded), Outcome::Unknown(_)) => Counted::Uncertain,
            (Ok(Settled::Recorded), Outcome::Done(_)) => Counted::Executed,
            (Ok(Settled::Recorded), Outcome::NothingDone) => return settled,
            (Ok(Settled::Lost(_)), _) => Counted::Fenced,
            (Err(_), _) => Counted::StoreError,
        };
        count(result, identity.business_type());
        settled
    }

    async fn resolve_record(&self, id: RecordId, resolution: &Resolution, actor: &str) -> Result<bool> {
        self.0.resolve_record(id, resolution, actor).await
    }

    async fn find_records(&self, filter: &RecordFilter, limit: usize) -> Result<Vec<RecordRow>> {
        self.0.find_records(filter, limit).await
    }

    async fn record_stats(&self) -> Result<RecordStats> {
        self.0.record_stats().await
    }
}

#[async_trait]
impl OneTimeTokens for CountedRecords {
    async fn issue_token(&self, identity: &Identity, ttl: Duration) -> Result<Timestamp> {
        self.0.issue_token(identity, ttl).await
    }
}

impl std::fmt::Debug for CountedRecords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CountedRecords").finish_non_exhaustive()
    }
}
