//! What a commit's answer means, and what is left of a begin that nobody waited for.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use landfall_core::{Database, ErrorKind, OutboxFilter, OutboxView, OutboxWriter};
use sqlx::Row;

use crate::stage::{message, migrated};

/// PostgreSQL itself answers such a commit without an error, and a message would be lost with it.
#[tokio::test]
async fn a_commit_after_a_failed_statement_is_an_error_and_commits_nothing() {
    let Some(database) = migrated().await else { return };
    let mut transaction = database.begin().await.unwrap();
    database.enqueue(&mut transaction, &[message("a", 1)]).await.unwrap();
    sqlx::query("SELECT 1 / 0").execute(&mut *transaction).await.unwrap_err();
    let error = database.commit(transaction).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(database.list(&OutboxFilter::default(), 10).await.unwrap().is_empty());
}

/// The short way to a commit, with the same answers.
#[tokio::test]
async fn enqueueing_as_the_last_act_commits_all_or_nothing() {
    let Some(database) = migrated().await else { return };
    let mut failed = database.begin().await.unwrap();
    sqlx::query("SELECT 1 / 0").execute(&mut *failed).await.unwrap_err();
    database.enqueue_and_commit(failed, &[message("a", 1)]).await.unwrap_err();
    let mut failed = database.begin().await.unwrap();
    sqlx::query("SELECT 1 / 0").execute(&mut *failed).await.unwrap_err();
    assert_eq!(database.enqueue_and_commit(failed, &[]).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert!(database.list(&OutboxFilter::default(), 10).await.unwrap().is_empty());

    let sound = database.begin().await.unwrap();
    database.enqueue_and_commit(sound, &[message("a", 1), message("a", 2)]).await.unwrap();
    assert_eq!(database.list(&OutboxFilter::default(), 10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_constraint_that_fails_at_the_commit_is_told_apart_from_a_lost_connection() {
    let Some(database) = migrated().await else { return };
    let table = "CREATE TABLE owner (id int PRIMARY KEY);
                 CREATE TABLE pet (owner int REFERENCES owner DEFERRABLE INITIALLY DEFERRED)";
    sqlx::raw_sql(table).execute(database.pool()).await.unwrap();
    let mut transaction = database.begin().await.unwrap();
    sqlx::query("INSERT INTO pet VALUES (7)").execute(&mut *transaction).await.unwrap();
    let error = database.commit(transaction).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[tokio::test]
async fn a_connection_lost_under_the_commit_is_unknown() {
    let Some(database) = migrated().await else { return };
    let mut transaction = database.begin().await.unwrap();
    let process: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *transaction).await.unwrap();
    let ended: bool = sqlx::query_scalar("SELECT pg_terminate_backend($1, 20000)")
        .bind(process)
        .fetch_one(database.pool())
        .await
        .unwrap();
    assert!(ended);
    let error = database.commit(transaction).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
}

#[tokio::test]
async fn connections_serve_many_transactions_one_after_the_other() {
    let Some(database) = migrated().await else { return };
    for sequence in 1..=20 {
        let mut transaction = database.begin().await.unwrap();
        database.enqueue(&mut transaction, &[message("a", sequence)]).await.unwrap();
        if sequence % 4 == 0 {
            drop(transaction);
        } else {
            database.commit(transaction).await.unwrap();
        }
    }
    assert_eq!(database.list(&OutboxFilter::default(), 100).await.unwrap().len(), 15);
    // What a commit left behind for the driver is rolled back: no connection sits in a transaction.
    landfall_testkit::eventually(crate::stage::SOON, "no connection is idle in a transaction", async || {
        let idle: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND state LIKE 'idle in transaction%'",
        )
        .fetch_one(database.pool())
        .await
        .unwrap();
        idle == 0
    })
    .await;
}

/// A caller that is dropped while `BEGIN` is on its way must not leave an open transaction in the pool: what the next
/// one runs on that connection without a transaction of its own would never be committed.
#[tokio::test]
async fn a_begin_that_is_cut_off_leaves_no_transaction_behind() {
    let Some(database) = migrated().await else { return };
    database.begin().await.unwrap();
    for polls in 1..20 {
        cut_off(database.begin(), polls).await;
        let mut busy = Vec::new();
        while let Some(connection) = database.pool().try_acquire() {
            busy.push(connection);
        }
        for connection in &mut busy {
            // now() is when the transaction began; for a simple query that is its own transaction, when that did.
            let times = sqlx::raw_sql("SELECT now() = statement_timestamp()").fetch_one(&mut **connection);
            let is_alone: bool = times.await.unwrap().get(0);
            assert!(is_alone, "the pool has a connection with an open transaction");
        }
    }
}

/// Polls `future` so many times, and drops it unless it has ended by then.
async fn cut_off(future: impl Future, polls: usize) {
    let mut future = pin!(future);
    let mut polled = 0;
    poll_fn(|context| {
        polled += 1;
        let is_over = future.as_mut().poll(context).is_ready() || polled == polls;
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
