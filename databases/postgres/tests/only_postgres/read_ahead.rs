//! The next stretch of a window is read while this one is sent; what fails in this one must still hold back its key.

use std::time::Duration;

use landfall_core::{Decision, Lease, OutboxEntry, OutboxQueue};
use landfall_postgres::Postgres;
use landfall_testkit::eventually;

use crate::stage::{LONG, SOON, lease_all, message, migrated, settlement};

const BATCH: usize = 50;

/// Of six messages of each of `BATCH` keys the first are sent and the second are read; the third have been read ahead.
async fn second_batch_of_six(database: &Postgres, leases: &[Lease]) -> Vec<OutboxEntry> {
    for round in 1..=6 {
        let messages: Vec<_> = (0..BATCH).map(|key| message(&format!("k{key}"), round)).collect();
        database.append(&messages).await.unwrap();
    }
    // The first look opens the window and hands out its beginning; the second is a stretch of it, and reads ahead.
    let first = database.next(leases, BATCH).await.unwrap();
    let published: Vec<_> = first.iter().map(|entry| settlement(entry, Decision::Published)).collect();
    database.settle(leases, &published).await.unwrap();
    let second = next_and_the_one_after(database, leases).await;
    assert_eq!(sequences(&second), [2; BATCH]);
    second
}

/// Reads a batch and waits until the one after it has been read too, by a statement that began after this did.
async fn next_and_the_one_after(database: &Postgres, leases: &[Lease]) -> Vec<OutboxEntry> {
    let began: f64 = sqlx::query_scalar("SELECT extract(epoch FROM clock_timestamp())::float8")
        .fetch_one(database.pool())
        .await
        .unwrap();
    let batch = database.next(leases, BATCH).await.unwrap();
    eventually(SOON, "the next stretch was read", async || {
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
async fn a_key_that_fails_is_held_back_in_the_stretch_that_was_read_before_it_failed() {
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
async fn what_was_read_ahead_and_not_settled_comes_again_in_its_place() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    let second = second_batch_of_six(&database, &leases).await;

    // Half of it stays undecided, as after a timeout of the broker: it is next, and nothing goes before it.
    let published: Vec<_> = second[..BATCH / 2].iter().map(|entry| settlement(entry, Decision::Published)).collect();
    database.settle(&leases, &published).await.unwrap();
    let third = database.next(&leases, BATCH).await.unwrap();
    let rows = |entries: &[OutboxEntry]| entries.iter().map(|entry| entry.row).collect::<Vec<_>>();
    assert_eq!(rows(&third[..BATCH / 2]), rows(&second[BATCH / 2..]));
    assert_eq!(sequences(&third[BATCH / 2..]), [3; BATCH / 2]);
}
