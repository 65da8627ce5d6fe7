//! What a store supplies, and the steps that the cases share.

use std::time::Duration;

use landfall_core::idempotency::{
    Claim, Epoch, Fingerprint, FingerprintBuilder, IdempotencyRecords, Identity, OnUnknown, OneTimeTokens, Outcome,
    RecordFilter, RecordState, Scope, Settled, Snapshot, Terms,
};
use landfall_core::{Expiring, Housekeeping, Schema};

use crate::conformance::database::DatabaseFixture;

/// A new, empty store for one case.
pub trait RecordsFixture: Sized + Send + Sync + 'static {
    type Store: OneTimeTokens + Clone + 'static;

    /// Returns `None` without a server, after calling [`not_run`](crate::not_run()).
    fn create() -> impl Future<Output = Option<Self>> + Send;

    /// Opens the store as another process would.
    fn open(&self) -> impl Future<Output = Self::Store> + Send;

    /// Lets every answer expire now, and returns how many there were if the store knows.
    fn expire_answers(&self, store: &Self::Store) -> impl Future<Output = Option<u64>> + Send;

    /// Lets every record expire now that may expire, and returns how many there were if the store knows.
    fn expire_records(&self, store: &Self::Store) -> impl Future<Output = Option<u64>> + Send;
}

/// The store of a database.
#[derive(Debug)]
pub struct OfDatabase<F>(F);

impl<F: DatabaseFixture> RecordsFixture for OfDatabase<F> {
    type Store = F::Database;

    async fn create() -> Option<Self> {
        let fixture = F::create().await?;
        fixture.open().await.migrate().await.unwrap();
        Some(Self(fixture))
    }

    async fn open(&self) -> F::Database {
        self.0.open().await
    }

    async fn expire_answers(&self, store: &F::Database) -> Option<u64> {
        Some(store.remove_expired(Expiring::IdempotencyAnswers, Duration::ZERO, 1000).await.unwrap())
    }

    async fn expire_records(&self, store: &F::Database) -> Option<u64> {
        Some(store.remove_expired(Expiring::IdempotencyRecords, Duration::ZERO, 1000).await.unwrap())
    }
}

/// A lease that ends within a case.
pub(super) const SHORT: Duration = Duration::from_millis(300);
/// The limit of every wait.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

/// The store under test, with shared steps.
#[derive(Debug)]
pub struct Steps<F: RecordsFixture> {
    pub(super) fixture: F,
    pub(super) store: F::Store,
}

impl<F: RecordsFixture> Steps<F> {
    pub(super) async fn new(fixture: F) -> Self {
        let store = fixture.open().await;
        Self { fixture, store }
    }

    pub(super) async fn claim(&self, identity: &Identity, terms: &Terms) -> Claim {
        self.store.claim_record(identity, &request("first"), terms).await.unwrap()
    }

    /// Claims a record that must be free.
    pub(super) async fn claimed(&self, identity: &Identity, terms: &Terms) -> Epoch {
        epoch(self.claim(identity, terms).await)
    }

    pub(super) async fn settle(&self, identity: &Identity, epoch: Epoch, outcome: Outcome) -> Settled {
        self.store.settle_record(identity, epoch, &outcome).await.unwrap()
    }

    /// Claims and completes a record.
    pub(super) async fn complete(&self, identity: &Identity, answer: &str) -> Epoch {
        let epoch = self.claimed(identity, &rerun()).await;
        assert_eq!(self.settle(identity, epoch, done(answer)).await, Settled::Recorded);
        epoch
    }

    /// Claims with a short lease, and waits until it has expired.
    pub(super) async fn abandon(&self, identity: &Identity, on_unknown: OnUnknown) -> Epoch {
        let terms = Terms { lease: SHORT, ..Terms::new(on_unknown) };
        let epoch = self.claimed(identity, &terms).await;
        crate::eventually(TIMEOUT, "the lease expires", async || {
            match on_unknown {
                OnUnknown::Uncertain => {
                    let filter = RecordFilter { id: Some(identity.id()), ..RecordFilter::default() };
                    let found = self.store.find_records(&filter, 1).await.unwrap();
                    found.iter().all(|row| row.state == RecordState::Uncertain)
                }
                // No case has another attempt in flight meanwhile.
                OnUnknown::Rerun => self.store.record_stats().await.unwrap().in_flight == 0,
            }
        })
        .await;
        epoch
    }
}

pub(super) fn epoch(claim: Claim) -> Epoch {
    match claim {
        Claim::Claimed { epoch } => epoch,
        other => panic!("not claimed: {other:?}"),
    }
}

pub(super) fn request(text: &str) -> Fingerprint {
    FingerprintBuilder::new("suite").part(text).finish()
}

pub(super) fn rerun() -> Terms {
    Terms::new(OnUnknown::Rerun)
}

pub(super) fn uncertain() -> Terms {
    Terms::new(OnUnknown::Uncertain)
}

pub(super) fn done(answer: &str) -> Outcome {
    Outcome::Done(Snapshot::from_bytes(answer.to_owned()))
}

pub(super) fn tenant(name: &str) -> Scope {
    Scope::principal(name).unwrap()
}

pub(super) fn order(key: &str) -> Identity {
    Identity::new(tenant("shop"), "order", key).unwrap()
}
