//! Distributed locks: owner-checked release, renewal and fencing.

use std::sync::Arc;
use std::time::Duration;

use landfall::idempotency::Locks;
use landfall::{ErrorKind, Leases};
use sqlx::SqlitePool;
use tokio::task::JoinSet;

use super::{Effects, SHORT};
use crate::fixture::{Fixture, TIMEOUT};

#[tokio::test(flavor = "multi_thread")]
async fn lock_is_exclusive_and_released_by_its_owner_only() {
    let fixture = Fixture::new().await;
    is_exclusive_and_released_by_its_owner_only(Arc::new(fixture.database.clone())).await;
}

pub(super) async fn is_exclusive_and_released_by_its_owner_only(leases: Arc<dyn Leases>) {
    let locks = Locks::new(leases);
    let first = locks.try_lock("report").await.unwrap().unwrap();
    assert!(first.is_held());
    assert!(locks.try_lock("report").await.unwrap().is_none());
    assert!(locks.try_lock("other").await.unwrap().is_some());
    let refused = locks.lock("report", SHORT).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InUse);
    let token = first.fencing_token();
    first.release().await.unwrap();
    let second = locks.lock("report", TIMEOUT).await.unwrap();
    assert!(second.fencing_token() > token);
    for wrong in ["", "a\nb", &"x".repeat(201)] {
        assert_eq!(locks.try_lock(wrong).await.unwrap_err().kind(), ErrorKind::Invalid);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn renewed_lock_outlives_its_ttl() {
    let fixture = Fixture::new().await;
    outlives_its_ttl(Arc::new(fixture.database.clone())).await;
}

pub(super) async fn outlives_its_ttl(leases: Arc<dyn Leases>) {
    let locks = Locks::new(leases).with_ttl(SHORT);
    let mut held = locks.try_lock("report").await.unwrap().unwrap();
    let lost = tokio::time::timeout(4 * SHORT, held.lost()).await;
    // A machine that stands still loses it for good reason.
    if lost.is_err() {
        assert!(held.is_held());
        assert!(locks.try_lock("report").await.unwrap().is_none());
    }
    drop(held);
    // Without a release it expires by itself.
    locks.lock("report", TIMEOUT).await.unwrap();
}

/// A holder that was paused is told, and its late write is refused by the token.
#[tokio::test(flavor = "multi_thread")]
async fn lost_lock_is_noticed_and_its_token_refuses_the_late_write() {
    let fixture = Fixture::new().await;
    let pool = fixture.database.pool();
    loss_is_noticed_and_the_token_refuses_the_late_write(Arc::new(fixture.database.clone()), pool, async || {
        let take = "UPDATE landfall_lease SET holder = NULL, expires_at = 0 WHERE name = 'lock/report'";
        sqlx::query(take).execute(pool).await.unwrap();
    })
    .await;
}

/// `take` frees the lock `report` without its holder.
pub(super) async fn loss_is_noticed_and_the_token_refuses_the_late_write(
    leases: Arc<dyn Leases>,
    pool: &SqlitePool,
    take: impl AsyncFn(),
) {
    sqlx::query("CREATE TABLE report (text TEXT, token INTEGER)").execute(pool).await.unwrap();
    sqlx::query("INSERT INTO report VALUES ('', 0)").execute(pool).await.unwrap();
    let write = async |text: &'static str, token: i64| {
        let guarded = "UPDATE report SET text = ?1, token = ?2 WHERE token <= ?2";
        let done = sqlx::query(guarded).bind(text).bind(token).execute(pool).await.unwrap();
        done.rows_affected()
    };
    let locks = Locks::new(leases).with_ttl(Duration::from_secs(3));
    let mut stale = locks.try_lock("report").await.unwrap().unwrap();
    assert_eq!(write("first", stale.fencing_token()).await, 1);
    take().await;
    let current = locks.try_lock("report").await.unwrap().unwrap();
    assert!(tokio::time::timeout(TIMEOUT, stale.lost()).await.is_ok(), "the loss is not noticed");
    assert!(!stale.is_held());
    assert_eq!(write("second", current.fencing_token()).await, 1);
    assert_eq!(write("late", stale.fencing_token()).await, 0);
    // A release of the stale holder leaves the current one alone.
    stale.release().await.unwrap();
    assert!(locks.try_lock("report").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_of_a_lock_never_overlap() {
    let fixture = Fixture::new().await;
    callers_never_overlap(Arc::new(fixture.database.clone())).await;
}

pub(super) async fn callers_never_overlap(leases: Arc<dyn Leases>) {
    let (locks, effects) = (Locks::new(leases), Effects::default());
    let mut calls = JoinSet::new();
    for _ in 0..8 {
        let (locks, effects) = (locks.clone(), effects.clone());
        calls.spawn(async move {
            let lock = locks.lock("counter", TIMEOUT).await.unwrap();
            let before = effects.count();
            tokio::task::yield_now().await;
            assert_eq!(effects.add(), before + 1, "another caller was inside");
            lock.release().await.unwrap();
        });
    }
    calls.join_all().await;
    assert_eq!(effects.count(), 8);
}
