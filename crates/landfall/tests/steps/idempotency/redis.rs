//! The store in Redis runs the conformance suite, on a real server per case.

use std::time::Duration;

use landfall::idempotency::{
    Claim, IdempotencyRecords, MemoryOptions, OnUnknown, OneTimeTokens, Outcome, RecordFilter, RecordRow, RecordState,
    RedisRecords, Scope, Snapshot, Terms, Token,
};
use landfall::{ErrorKind, Timestamp};
use landfall_testkit::conformance::idempotency::RecordsFixture;
use landfall_testkit::servers::RedisServer;
use landfall_testkit::{current_test, eventually};

use super::{order, request};
use crate::fixture::TIMEOUT;

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

/// Claims and completes.
async fn complete(records: &RedisRecords, key: &str) {
    let claim = records.claim_record(&order(key), &request(key), &Terms::new(OnUnknown::Rerun)).await.unwrap();
    let Claim::Claimed { epoch } = claim else { panic!("{claim:?}") };
    let done = Outcome::Done(Snapshot::from_bytes("1"));
    records.settle_record(&order(key), epoch, &done).await.unwrap();
}

/// Redis removes an expired record, and not what Landfall knows beside it. Without this, memory grows with each key.
#[tokio::test]
async fn expired_records_leave_the_index_without_a_listing() {
    let Some(redis) = RedisServer::start(&current_test()).await else { return };
    let short = MemoryOptions { keep_answers: Duration::from_millis(1), keep_records: Duration::from_millis(1) };
    let records = RedisRecords::new(&redis.url(), "test", short).unwrap();
    let parked = records.claim_record(&order("parked"), &request("1"), &Terms::new(OnUnknown::Uncertain)).await;
    let Ok(Claim::Claimed { epoch }) = parked else { panic!("{parked:?}") };
    records.settle_record(&order("parked"), epoch, &Outcome::Unknown("lost".into())).await.unwrap();
    for number in 0..20 {
        complete(&records, &format!("claim {number}")).await;
        let token = Token::generate().unwrap().identity(Scope::Global, "order", "1").unwrap();
        records.issue_token(&token, Duration::from_millis(1)).await.unwrap();
    }
    let size = async |set: &str| redis.ask(&format!("ZCARD test:idempotency:{set}")).await.unwrap().trim().to_owned();
    // Each new record removes a few old ones. Left are the last one and the one that waits for a person.
    let mut number = 0;
    eventually(TIMEOUT, "the expired records have left the index", async || {
        number += 1;
        complete(&records, &format!("later {number}")).await;
        size("index").await == ":2"
    })
    .await;
    assert_eq!((size("open").await.as_str(), size("expiry").await.as_str()), (":1", ":1"));
    let filter = RecordFilter { state: Some(RecordState::Uncertain), ..RecordFilter::default() };
    assert_eq!(records.find_records(&filter, 10).await.unwrap().len(), 1);
}

/// An offset would move with every record that expires before it.
#[tokio::test]
async fn listing_skips_no_record_while_others_expire() {
    let Some(redis) = RedisServer::start(&current_test()).await else { return };
    let records = open(&redis);
    for number in 0..600 {
        complete(&records, &number.to_string()).await;
    }
    // The newest ones, which fill the first page.
    let expired: Vec<String> = (400..600).map(|number| order(&number.to_string()).id().to_string()).collect();
    let keys: Vec<String> = expired.iter().map(|id| format!("test:idempotency:{id}")).collect();
    redis.ask(&format!("DEL {}", keys.join(" "))).await.unwrap();
    let listed = records.find_records(&RecordFilter::default(), 1000).await.unwrap();
    assert_eq!(listed.len(), 400);
    // Page by page, as a caller does.
    let (mut filter, mut keys) = (RecordFilter::default(), Vec::new());
    loop {
        let page = records.find_records(&filter, 70).await.unwrap();
        let Some(last) = page.last() else { break };
        filter.before = Some((last.claimed_at, last.id));
        keys.extend(page.iter().map(|row| row.id));
    }
    assert_eq!(keys, listed.iter().map(|row| row.id).collect::<Vec<_>>());
    assert_eq!(redis.ask("ZCARD test:idempotency:index").await.unwrap().trim(), ":400");
}

/// Also more records of one millisecond than a page has.
#[tokio::test]
async fn listing_skips_no_record_of_one_moment() {
    let Some(redis) = RedisServer::start(&current_test()).await else { return };
    let records = open(&redis);
    let mut scores = String::new();
    for number in 0..450 {
        complete(&records, &number.to_string()).await;
        scores.push_str(&format!(" 7 {}", order(&number.to_string()).id()));
    }
    redis.ask(&format!("ZADD test:idempotency:index{scores}")).await.unwrap();
    assert_eq!(records.find_records(&RecordFilter::default(), 1000).await.unwrap().len(), 450);
}
