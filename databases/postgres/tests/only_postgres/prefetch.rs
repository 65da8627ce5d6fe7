//! The next range of a window is read while the current one is sent. A failure in the current one must still block its
//! key in the next.

use std::time::Duration;

use landfall_core::OutboxQueue;
use landfall_core::adapter::{Decision, Lease, OutboxEntry};
use landfall_postgres::Postgres;
use landfall_testkit::eventually;

use crate::stage::{LONG, SOON, lease_all, message, migrated, settlement};

const BATCH: usize = 50;

/// Appends six messages of each of `BATCH` keys, sends the first, and returns the second; the third are prefetched.
async fn second_batch_of_six(database: &Postgres, leases: &[Lease]) -> Vec<OutboxEntry> {
    for round in 1..=6 {
        let messages: Vec<_> = (0..BATCH).map(|key| message(&format!("k{key}"), round)).collect();
        database.append(&messages).await.unwrap();
    }
    // The first call opens the window and returns its beginning; the second reads a range of it, and prefetches.
    let first = database.next(leases, BATCH).await.unwrap();
    let published: Vec<_> = first.iter().map(|entry| settlement(entry, Decision::Published)).collect();
    database.settle(leases, &published).await.unwrap();
    let second = next_with_prefetch(database, leases).await;
    assert_eq!(sequences(&second), [2; BATCH]);
    second
}

/// Reads a batch and waits until the next one is prefetched, by a statement that began later.
async fn next_with_prefetch(database: &Postgres, leases: &[Lease]) -> Vec<OutboxEntry> {
    let began: f64 = sqlx::query_scalar("SELECT extract(epoch FROM clock_timestamp())::float8")
        .fetch_one(database.pool())
        .await
        .unwrap();
    let batch = database.next(leases, BATCH).await.unwrap();
    eventually(SOON, "the next range is prefetched", async || {
        sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM pg_stat_activity
             WHERE datname = current_database() AND query LIKE '%outbox' || '_walk%' AND pid <> pg_backend_pid()
               AND state = 'idle' AND extract(epoch FROM query_start)::float8 > $1)",
        )
        .bind(began)
        .fetch_one(database.pool())
        .await
        .unwrap()
    })
    .await;
    batch
}

fn sequences(entries: &[OutboxEntry]) -> Vec<i64> {
    entries.iter().map(|entry| entry.message.as_ref().unwrap().sequence.unwrap()).collect()
}

#[tokio::test]
async fn failed_key_is_blocked_in_the_prefetched_range() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    let second = second_batch_of_six(&database, &leases).await;

    let later = Decision::Retry { after: Duration::from_secs(3600), error: "not now".into() };
    let decide = |(at, entry): (usize, &OutboxEntry)| {
        settlement(entry, if at == 7 { later.clone() } else { Decision::Published })
    };
    let settled: Vec<_> = second.iter().enumerate().map(decide).collect();
    assert_eq!(database.settle(&leases, &settled).await.unwrap().len(), BATCH);

    let failed = second[7].message.as_ref().unwrap().key.clone();
    let third = database.next(&leases, BATCH).await.unwrap();
    assert_eq!(sequences(&third), [3; BATCH - 1]);
    assert!(third.iter().all(|entry| entry.message.as_ref().unwrap().key != failed));
}

#[tokio::test]
async fn unsettled_rows_come_before_prefetched_ones() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    let second = second_batch_of_six(&database, &leases).await;

    // Half of it stays unsettled, as after a timeout of the broker: it must come next, before any other row.
    let published: Vec<_> = second[..BATCH / 2].iter().map(|entry| settlement(entry, Decision::Published)).collect();
    database.settle(&leases, &published).await.unwrap();
    let third = database.next(&leases, BATCH).await.unwrap();
    let rows = |entries: &[OutboxEntry]| entries.iter().map(|entry| entry.row).collect::<Vec<_>>();
    assert_eq!(rows(&third[..BATCH / 2]), rows(&second[BATCH / 2..]));
    assert_eq!(sequences(&third[BATCH / 2..]), [3; BATCH / 2]);
}
