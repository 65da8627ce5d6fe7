//! The conformance suite of idempotency records catches the bugs that such stores usually have. Each is planted here.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use landfall_core::idempotency::{
    Claim, Epoch, Fingerprint, IdempotencyRecords, Identity, IdentityKind, OnUnknown, OneTimeTokens, Opened, Outcome,
    RecordFilter, RecordId, RecordRow, RecordState, RecordStats, RecordWriter, Resolution, Scope, Settled, Snapshot,
    Terms,
};
use landfall_core::{Database, Expiring, Housekeeping, Result, Schema, Timestamp};
use landfall_postgres::Postgres;
use landfall_sqlite::{Options, Sqlite};
use landfall_testkit::conformance::idempotency::{RecordsFixture, claim, lease, run, settle, token};
use landfall_testkit::conformance::record_rollback::assert_rollback_leaves_no_record;
use landfall_testkit::servers::fresh_postgres_database;
use tempfile::TempDir;

/// A store with one bug.
#[derive(Clone)]
struct Planted<const BUG: usize>(Sqlite);

const NONE: usize = 0;
const FINGERPRINT_IGNORED_IN_FLIGHT: usize = 1;
const LEASE_WITHOUT_FENCE: usize = 2;
const KEYS_WITHOUT_SCOPE: usize = 3;
const TOKEN_CONSUMED_BEFORE_THE_WORK: usize = 4;
const CHECK_THEN_ACT: usize = 5;
const RESOLVED_WITHOUT_FENCE: usize = 6;
const UNKNOWN_MEANS_NOT_DONE: usize = 7;

impl<const BUG: usize> Planted<BUG> {
    fn seen(&self, identity: &Identity) -> Identity {
        match BUG {
            KEYS_WITHOUT_SCOPE if identity.kind() == IdentityKind::Record => {
                Identity::new(Scope::Global, identity.business_type(), identity.key()).unwrap()
            }
            _ => identity.clone(),
        }
    }

    async fn row(&self, identity: &Identity) -> Option<RecordRow> {
        let filter = RecordFilter { id: Some(identity.id()), ..RecordFilter::default() };
        self.0.find_records(&filter, 1).await.unwrap().pop()
    }
}

#[async_trait]
impl<const BUG: usize> IdempotencyRecords for Planted<BUG> {
    async fn claim_record(&self, identity: &Identity, fingerprint: &Fingerprint, terms: &Terms) -> Result<Claim> {
        let identity = self.seen(identity);
        let is_missing = BUG == CHECK_THEN_ACT && self.row(&identity).await.is_none();
        let claim = self.0.claim_record(&identity, fingerprint, terms).await?;
        let state = self.row(&identity).await.map(|row| row.state);
        match claim {
            Claim::Mismatch if BUG == FINGERPRINT_IGNORED_IN_FLIGHT && state == Some(RecordState::InFlight) => {
                Ok(Claim::InFlight { remaining: Duration::ZERO })
            }
            // It was missing a moment ago.
            Claim::InFlight { .. } if is_missing => Ok(Claim::Claimed { epoch: 1 }),
            Claim::Claimed { epoch } if BUG == TOKEN_CONSUMED_BEFORE_THE_WORK => {
                if identity.kind() == IdentityKind::Token {
                    self.0.settle_record(&identity, epoch, &Outcome::Done(Snapshot::from_bytes(""))).await?;
                }
                Ok(claim)
            }
            claim => Ok(claim),
        }
    }

    async fn renew_record(&self, identity: &Identity, epoch: Epoch, lease: Duration) -> Result<Option<Duration>> {
        self.0.renew_record(&self.seen(identity), epoch, lease).await
    }

    async fn settle_record(&self, identity: &Identity, epoch: Epoch, outcome: &Outcome) -> Result<Settled> {
        let identity = self.seen(identity);
        let current = self.row(&identity).await;
        let epoch = match current {
            Some(row) if BUG == LEASE_WITHOUT_FENCE => row.epoch,
            Some(RecordRow { reason: Some(why), .. }) if BUG == RESOLVED_WITHOUT_FENCE && why.contains("resolved") => {
                return Ok(Settled::Recorded);
            }
            _ => epoch,
        };
        match outcome {
            Outcome::Unknown(_) if BUG == UNKNOWN_MEANS_NOT_DONE => {
                self.0.settle_record(&identity, epoch, &Outcome::NothingDone).await
            }
            _ => self.0.settle_record(&identity, epoch, outcome).await,
        }
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
impl<const BUG: usize> OneTimeTokens for Planted<BUG> {
    async fn issue_token(&self, identity: &Identity, ttl: Duration) -> Result<Timestamp> {
        self.0.issue_token(identity, ttl).await
    }
}

struct Fixture<const BUG: usize>(TempDir);

impl<const BUG: usize> RecordsFixture for Fixture<BUG> {
    type Store = Planted<BUG>;

    async fn create() -> Option<Self> {
        let fixture = Self(TempDir::new().unwrap());
        fixture.open().await.0.migrate().await.unwrap();
        Some(fixture)
    }

    async fn open(&self) -> Planted<BUG> {
        let file = self.0.path().join("landfall.db");
        Planted(Sqlite::open(file.to_str().unwrap(), Options::default()).await.unwrap())
    }

    async fn expire_answers(&self, store: &Planted<BUG>) -> Option<u64> {
        Some(store.0.remove_expired(Expiring::IdempotencyAnswers, Duration::ZERO, 1000).await.unwrap())
    }

    async fn expire_records(&self, store: &Planted<BUG>) -> Option<u64> {
        Some(store.0.remove_expired(Expiring::IdempotencyRecords, Duration::ZERO, 1000).await.unwrap())
    }
}

/// Asserts that the case passes without a bug and fails with it.
macro_rules! caught {
    ($test:ident, $bug:ident, $case:path) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn $test() {
            run::<Fixture<NONE>, _>($case).await;
            let failed = AssertUnwindSafe(run::<Fixture<$bug>, _>($case)).catch_unwind().await;
            assert!(failed.is_err(), "the suite accepts a store with this bug");
        }
    };
}

caught!(
    fingerprint_ignored_in_flight_is_caught,
    FINGERPRINT_IGNORED_IN_FLIGHT,
    claim::other_fingerprint_is_refused_in_every_state
);
caught!(lease_without_fence_is_caught, LEASE_WITHOUT_FENCE, lease::stale_attempt_settles_nothing);
caught!(keys_without_scope_are_caught, KEYS_WITHOUT_SCOPE, claim::scopes_types_and_kinds_have_their_own_keys);
caught!(
    token_consumed_before_the_work_is_caught,
    TOKEN_CONSUMED_BEFORE_THE_WORK,
    token::failed_work_gives_the_token_back
);
caught!(check_then_act_is_caught, CHECK_THEN_ACT, claim::hundred_concurrent_claims_have_one_winner);
caught!(resolution_without_fence_is_caught, RESOLVED_WITHOUT_FENCE, settle::resolved_attempt_can_settle_no_more);
caught!(unknown_read_as_not_done_is_caught, UNKNOWN_MEANS_NOT_DONE, settle::unknown_outcome_follows_the_policy);

/// A record that is written outside the transaction of its work: a crash makes the retry its own duplicate.
#[derive(Clone)]
struct Outside(Postgres);

impl Database for Outside {
    type Connection = <Postgres as Database>::Connection;
    type Transaction = <Postgres as Database>::Transaction;

    async fn begin(&self) -> Result<Self::Transaction> {
        self.0.begin().await
    }

    async fn commit(&self, transaction: Self::Transaction) -> Result<()> {
        self.0.commit(transaction).await
    }

    async fn flush(&self, transaction: Self::Transaction) -> Result<()> {
        self.0.flush(transaction).await
    }
}

impl RecordWriter for Outside {
    async fn open_record(
        &self,
        _: &mut Self::Connection,
        identity: &Identity,
        fingerprint: &Fingerprint,
    ) -> Result<Opened> {
        let claim = self.0.claim_record(identity, fingerprint, &Terms::new(OnUnknown::Uncertain)).await?;
        Ok(if matches!(claim, Claim::Claimed { .. }) { Opened::Fresh } else { Opened::Refused(claim) })
    }

    async fn store_answer(
        &self,
        connection: &mut Self::Connection,
        identity: &Identity,
        answer: &Snapshot,
    ) -> Result<()> {
        self.0.store_answer(connection, identity, answer).await
    }
}

#[async_trait]
impl IdempotencyRecords for Outside {
    async fn claim_record(&self, identity: &Identity, fingerprint: &Fingerprint, terms: &Terms) -> Result<Claim> {
        self.0.claim_record(identity, fingerprint, terms).await
    }

    async fn renew_record(&self, identity: &Identity, epoch: Epoch, lease: Duration) -> Result<Option<Duration>> {
        self.0.renew_record(identity, epoch, lease).await
    }

    async fn settle_record(&self, identity: &Identity, epoch: Epoch, outcome: &Outcome) -> Result<Settled> {
        self.0.settle_record(identity, epoch, outcome).await
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

#[tokio::test(flavor = "multi_thread")]
async fn record_outside_the_transaction_is_caught() {
    let Some(url) = fresh_postgres_database().await else { return };
    let database = Postgres::connect(&url, landfall_postgres::Options::default()).await.unwrap();
    database.migrate().await.unwrap();
    assert_rollback_leaves_no_record(&database).await;
    let failed = AssertUnwindSafe(assert_rollback_leaves_no_record(&Outside(database))).catch_unwind().await;
    assert!(failed.is_err(), "the suite accepts a record outside the transaction");
}
