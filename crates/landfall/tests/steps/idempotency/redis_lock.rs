//! Locks in Redis: the suite of the database's leases, and what Redis alone does not promise.

use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use landfall::adapter::LeaseName;
use landfall::idempotency::{Locks, RedisLeases};
use landfall::{Holder, Leases};
use landfall_testkit::servers::{RedisOptions, RedisServer};
use landfall_testkit::{current_test, eventually};

use super::{SHORT, lock};
use crate::fixture::{Fixture, TIMEOUT};

const LONG: Duration = Duration::from_secs(600);

async fn server() -> Option<RedisServer> {
    RedisServer::start(&current_test()).await
}

fn open(redis: &RedisServer) -> Arc<RedisLeases> {
    Arc::new(RedisLeases::new(&redis.url(), "test").unwrap())
}

fn name(text: &str) -> LeaseName {
    LeaseName(text.to_owned())
}

fn holder(text: &str) -> Holder {
    Holder(text.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_in_redis_is_exclusive_and_released_by_its_owner_only() {
    let Some(redis) = server().await else { return };
    lock::is_exclusive_and_released_by_its_owner_only(open(&redis)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn renewed_lock_in_redis_outlives_its_ttl() {
    let Some(redis) = server().await else { return };
    lock::outlives_its_ttl(open(&redis)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_lock_in_redis_is_noticed_and_its_token_refuses_the_late_write() {
    let Some(redis) = server().await else { return };
    let fixture = Fixture::new().await;
    lock::loss_is_noticed_and_the_token_refuses_the_late_write(open(&redis), fixture.database.pool(), async || {
        redis.ask("HDEL test:lease:lock/report holder").await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_of_a_lock_in_redis_never_overlap() {
    let Some(redis) = server().await else { return };
    lock::callers_never_overlap(open(&redis)).await;
}

/// What `Leases` promises, beyond what a lock uses.
#[tokio::test]
async fn leases_in_redis_keep_the_contract() {
    let Some(redis) = server().await else { return };
    let (leases, other) = (open(&redis), open(&redis));
    let first = leases.acquire(&name("a/1"), &holder("one"), LONG).await.unwrap().unwrap();
    assert!(first.is_live());
    assert!(other.acquire(&name("a/1"), &holder("two"), LONG).await.unwrap().is_none());
    // The same holder keeps its epoch, and a renewal too.
    let again = leases.acquire(&name("a/1"), &holder("one"), LONG).await.unwrap().unwrap();
    let renewed = leases.renew(from_ref(&again), LONG).await.unwrap();
    assert_eq!((again.epoch, renewed[0].epoch), (first.epoch, first.epoch));
    assert!(renewed[0].until >= again.until);
    // An expired lease is renewed as long as no other holder has taken it.
    let short = leases.acquire(&name("b/1"), &holder("one"), Duration::from_millis(1)).await.unwrap().unwrap();
    eventually(TIMEOUT, "it expires", async || other.held("b/").await.unwrap().is_empty()).await;
    assert_eq!(other.lapsed("b/").await.unwrap(), [holder("one")]);
    assert_eq!(leases.renew(from_ref(&short), Duration::from_millis(1)).await.unwrap().len(), 1);
    eventually(TIMEOUT, "it expires again", async || other.held("b/").await.unwrap().is_empty()).await;
    let taken = other.acquire(&name("b/1"), &holder("two"), LONG).await.unwrap().unwrap();
    assert!(taken.epoch > short.epoch);
    assert!(leases.renew(from_ref(&short), LONG).await.unwrap().is_empty());
    // A stale holder releases nothing; the owner's release keeps the epoch.
    leases.release(&[short.clone(), first.clone()]).await.unwrap();
    leases.release(&[short, first.clone()]).await.unwrap();
    assert_eq!(leases.held("").await.unwrap(), [name("b/1")]);
    assert_eq!((leases.held("a/").await.unwrap(), leases.lapsed("").await.unwrap()), (vec![], vec![]));
    assert!(leases.renew(from_ref(&first), LONG).await.unwrap().is_empty(), "a released lease was renewed");
    assert!(other.acquire(&name("a/1"), &holder("two"), LONG).await.unwrap().unwrap().epoch > first.epoch);
    assert_eq!(leases.held("").await.unwrap(), [name("a/1"), name("b/1")]);
    assert!(leases.acquire(&name(""), &holder("one"), LONG).await.is_err());
}

/// The documented limit: a flush gives the lock to a second holder. The token tells them apart.
#[tokio::test(flavor = "multi_thread")]
async fn flushed_redis_gives_the_lock_again_under_a_higher_token() {
    let Some(redis) = server().await else { return };
    let locks = Locks::new(open(&redis)).with_ttl(Duration::from_secs(3));
    let mut first = locks.try_lock("report").await.unwrap().unwrap();
    redis.flush().await.unwrap();
    // A new epoch is the time in milliseconds.
    tokio::time::sleep(Duration::from_millis(2)).await;
    let second = locks.try_lock("report").await.unwrap().unwrap();
    assert!(second.fencing_token() > first.fencing_token());
    tokio::time::timeout(TIMEOUT, first.lost()).await.expect("the loss is noticed");
    first.release().await.unwrap();
    assert!(locks.try_lock("report").await.unwrap().is_none(), "the stale holder released it");
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_is_lost_by_the_local_clock_while_redis_is_paused() {
    let Some(redis) = server().await else { return };
    let locks = Locks::new(open(&redis)).with_ttl(SHORT);
    let mut held = locks.try_lock("report").await.unwrap().unwrap();
    redis.pause().await.unwrap();
    tokio::time::timeout(TIMEOUT, held.lost()).await.expect("a lease that is not renewed ends");
    assert!(!held.is_held());
    redis.resume().await.unwrap();
    drop(held);
    locks.lock("report", TIMEOUT).await.unwrap();
}

/// A replica may lack the last acquisition. Its token is higher all the same.
#[tokio::test(flavor = "multi_thread")]
async fn failover_gives_higher_tokens_only() {
    let Some(master) = RedisServer::start_with(&current_test(), RedisOptions::durable()).await else { return };
    let options = RedisOptions::replica_of(master.port());
    let Some(replica) = RedisServer::start_with(&current_test(), options).await else { return };
    let locks = Locks::new(open(&master));
    let token = async |locks: &Locks| {
        let lock = locks.try_lock("report").await.unwrap().unwrap();
        let token = lock.fencing_token();
        lock.release().await.unwrap();
        token
    };
    let before = token(&locks).await;
    eventually(TIMEOUT, "the replica has the lease", async || {
        replica.ask("HGET test:lease:lock/report epoch").await.unwrap().contains(&before.to_string())
    })
    .await;
    replica.pause().await.unwrap();
    let unseen = token(&locks).await;
    master.kill_9().await.unwrap();
    replica.resume().await.unwrap();
    replica.ask("REPLICAOF NO ONE").await.unwrap();
    let after = token(&Locks::new(open(&replica))).await;
    assert!(before < unseen && unseen < after, "{before} {unseen} {after}");
}
