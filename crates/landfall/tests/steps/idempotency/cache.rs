//! Redis in front of a database: the suite holds, whatever happens to Redis.

use std::sync::Arc;
use std::time::Duration;

use landfall::housekeeping::Expiring;
use landfall::idempotency::{CachedRecords, Claim, IdempotencyRecords, OnUnknown, Outcome, Settled, Snapshot, Terms};
use landfall::{Housekeeping, Schema};
use landfall_sqlite::Sqlite;
use landfall_testkit::conformance::idempotency::RecordsFixture;
use landfall_testkit::current_test;
use landfall_testkit::servers::RedisServer;
use tempfile::TempDir;

use super::{order, request};

struct Cached {
    redis: RedisServer,
    folder: TempDir,
}

impl Cached {
    async fn database(&self) -> Sqlite {
        let file = self.folder.path().join("landfall.db");
        Sqlite::open(file.to_str().unwrap(), Default::default()).await.unwrap()
    }

    async fn remove(&self, what: Expiring) -> Option<u64> {
        // What is cached expires too.
        self.redis.flush().await.unwrap();
        Some(self.database().await.remove_expired(what, Duration::ZERO, 1000).await.unwrap())
    }
}

impl RecordsFixture for Cached {
    type Store = CachedRecords;

    async fn create() -> Option<Self> {
        let fixture = Self { redis: RedisServer::start(&current_test()).await?, folder: TempDir::new().unwrap() };
        fixture.database().await.migrate().await.unwrap();
        Some(fixture)
    }

    async fn open(&self) -> CachedRecords {
        let database = Arc::new(self.database().await);
        CachedRecords::new(database, &self.redis.url(), "test", Duration::from_secs(600)).unwrap()
    }

    async fn expire_answers(&self, _: &CachedRecords) -> Option<u64> {
        self.remove(Expiring::IdempotencyAnswers).await
    }

    async fn expire_records(&self, _: &CachedRecords) -> Option<u64> {
        self.remove(Expiring::IdempotencyRecords).await
    }
}

landfall_testkit::idempotency_conformance!(Cached);

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_replayed_with_redis_full_flushed_paused_and_gone() {
    let Some(fixture) = Cached::create().await else { return };
    let (records, terms) = (fixture.open().await, Terms::new(OnUnknown::Uncertain));
    let claim = async |text: &str| records.claim_record(&order("1"), &request(text), &terms).await.unwrap();
    let Claim::Claimed { epoch } = claim("first").await else { panic!() };
    let answer = Snapshot::new(201, vec![("location".into(), "/1".into())], "paid");
    let settled = records.settle_record(&order("1"), epoch, &Outcome::Done(answer.clone())).await.unwrap();
    assert_eq!(settled, Settled::Recorded);
    for fault in ["full", "roomy", "cached", "flushed", "paused", "resumed", "gone"] {
        let set = async |command: &str| fixture.redis.ask(command).await.unwrap();
        match fault {
            "full" => {
                assert_eq!(set("CONFIG SET maxmemory 1").await.trim(), "+OK");
                assert!(set("SET another value").await.starts_with("-OOM"), "Redis is not full");
            }
            "roomy" => assert_eq!(set("CONFIG SET maxmemory 0").await.trim(), "+OK"),
            "flushed" => fixture.redis.flush().await.unwrap(),
            "paused" => fixture.redis.pause().await.unwrap(),
            "resumed" => fixture.redis.resume().await.unwrap(),
            "gone" => fixture.redis.kill_9().await.unwrap(),
            _ => {}
        }
        assert_eq!(claim("first").await, Claim::Completed(answer.clone()), "{fault}");
        assert_eq!(claim("second").await, Claim::Mismatch, "{fault}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeat_is_answered_without_the_database() {
    let Some(fixture) = Cached::create().await else { return };
    let (records, terms) = (fixture.open().await, Terms::new(OnUnknown::Uncertain));
    let claim = async || records.claim_record(&order("1"), &request("first"), &terms).await.unwrap();
    let Claim::Claimed { epoch } = claim().await else { panic!() };
    let done = Outcome::Done(Snapshot::from_bytes("paid"));
    records.settle_record(&order("1"), epoch, &done).await.unwrap();
    // The first repeat reads the database, and fills the cache.
    assert_eq!(claim().await, Claim::Completed(Snapshot::from_bytes("paid")));
    let database = fixture.database().await;
    sqlx::query("DROP TABLE landfall_idempotency").execute(database.pool()).await.unwrap();
    assert_eq!(claim().await, Claim::Completed(Snapshot::from_bytes("paid")));
}
