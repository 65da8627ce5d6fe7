//! A store whose calls fail on request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use landfall::idempotency::{
    Claim, Epoch, Fingerprint, IdempotencyRecords, Identity, MemoryRecords, Outcome, RecordFilter, RecordId, RecordRow,
    RecordStats, Resolution, Settled, Terms,
};
use landfall::{Error, ErrorKind, Result};

/// Fails the next calls of each kind, before they reach the store.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faulty {
    pub(crate) records: MemoryRecords,
    claims: Arc<AtomicU32>,
    renewals: Arc<AtomicU32>,
    settles: Arc<AtomicU32>,
}

impl Faulty {
    pub(crate) fn fail_claims(&self, number: u32) {
        self.claims.store(number, Ordering::SeqCst);
    }

    pub(crate) fn fail_renewals(&self, number: u32) {
        self.renewals.store(number, Ordering::SeqCst);
    }

    pub(crate) fn fail_settles(&self, number: u32) {
        self.settles.store(number, Ordering::SeqCst);
    }
}

fn fail(number: &AtomicU32) -> Result<()> {
    let failed = number.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
    failed.map_or(Ok(()), |_| Err(Error::new(ErrorKind::Unavailable, "the store is down")))
}

#[async_trait]
impl IdempotencyRecords for Faulty {
    async fn claim_record(&self, identity: &Identity, fingerprint: &Fingerprint, terms: &Terms) -> Result<Claim> {
        fail(&self.claims)?;
        self.records.claim_record(identity, fingerprint, terms).await
    }

    async fn renew_record(&self, identity: &Identity, epoch: Epoch, lease: Duration) -> Result<Option<Duration>> {
        fail(&self.renewals)?;
        self.records.renew_record(identity, epoch, lease).await
    }

    async fn settle_record(&self, identity: &Identity, epoch: Epoch, outcome: &Outcome) -> Result<Settled> {
        fail(&self.settles)?;
        self.records.settle_record(identity, epoch, outcome).await
    }

    async fn resolve_record(&self, id: RecordId, resolution: &Resolution, actor: &str) -> Result<bool> {
        self.records.resolve_record(id, resolution, actor).await
    }

    async fn find_records(&self, filter: &RecordFilter, limit: usize) -> Result<Vec<RecordRow>> {
        self.records.find_records(filter, limit).await
    }

    async fn record_stats(&self) -> Result<RecordStats> {
        self.records.record_stats().await
    }
}
