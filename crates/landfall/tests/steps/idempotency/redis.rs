//! The store in Redis runs the conformance suite, on a real server per case.

use std::time::Duration;

use landfall::idempotency::{
    Claim, IdempotencyRecords, MemoryOptions, OnUnknown, RecordFilter, RecordRow, RedisRecords, Terms,
};
use landfall::{ErrorKind, Timestamp};
use landfall_testkit::conformance::idempotency::RecordsFixture;
use landfall_testkit::current_test;
use landfall_testkit::servers::RedisServer;

use super::{order, request};

struct OnRedis(RedisServer);

fn open(redis: &RedisServer) -> RedisRecords {
    RedisRecords::new(&redis.url(), "test", MemoryOptions::default()).unwrap()
}

fn key(row: &RecordRow) -> String {
    format!("test:idempotency:{}", row.id)
}

impl RecordsFixture for OnRedis {
    type Store = RedisRecords;

    async fn create() -> Option<Self> {
        RedisServer::start(&current_test()).await.map(Self)
    }

    async fn open(&self) -> RedisRecords {
        open(&self.0)
    }

    /// Makes every record old.
    async fn expire_answers(&self, store: &RedisRecords) -> Option<u64> {
        for row in store.find_records(&RecordFilter::default(), 1000).await.unwrap() {
            self.0.ask(&format!("HSET {} claimed 0", key(&row))).await.unwrap();
        }
        None
    }

    /// Lets each key expire that Redis would expire. One that waits for a person has no expiry.
    async fn expire_records(&self, store: &RedisRecords) -> Option<u64> {
        for row in store.find_records(&RecordFilter::default(), 1000).await.unwrap() {
            // The life of a key is never shorter than its lease.
            let is_open = row.expires_at.is_some_and(|expires_at| expires_at > Timestamp::now());
            let left = self.0.ask(&format!("PTTL {}", key(&row))).await.unwrap();
            if left.trim() != ":-1" && !is_open {
                self.0.ask(&format!("DEL {}", key(&row))).await.unwrap();
            }
        }
        // The epoch of a removed and repeated key is the time in milliseconds.
        tokio::time::sleep(Duration::from_millis(2)).await;
        None
    }
}

landfall_testkit::idempotency_conformance!(OnRedis);

/// What Redis alone cannot promise: after a flush a key is free again. An attempt from before settles nothing.
#[tokio::test]
async fn flushed_redis_forgets_keys_and_fences_earlier_attempts() {
    let Some(redis) = RedisServer::start(&current_test()).await else { return };
    let (records, terms) = (open(&redis), Terms::new(OnUnknown::Rerun));
    let claim = async || records.claim_record(&order("1"), &request("1"), &terms).await;
    let Claim::Claimed { epoch: first } = claim().await.unwrap() else { panic!() };
    redis.flush().await.unwrap();
    tokio::time::sleep(Duration::from_millis(2)).await;
    let Claim::Claimed { epoch: second } = claim().await.unwrap() else { panic!() };
    assert!(second > first);
    assert_eq!(records.renew_record(&order("1"), first, Duration::from_secs(9)).await.unwrap(), None);
    redis.kill_9().await.unwrap();
    let down = claim().await.unwrap_err();
    assert!(matches!(down.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{down}");
}
