//! Outcomes of a commit, and a begin that is cancelled.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use landfall_core::{Database, ErrorKind, OutboxFilter, OutboxView, OutboxWriter};
use sqlx::Row;

use crate::stage::{message, migrated};

/// PostgreSQL itself reports no error for such a commit, and a message would be lost.
#[tokio::test]
async fn commit_after_a_failed_statement_fails_and_commits_nothing() {
    let Some(database) = migrated().await else { return };
    let mut transaction = database.begin().await.unwrap();
    database.enqueue(&mut transaction, &[message("a", 1)]).await.unwrap();
    sqlx::query("SELECT 1 / 0").execute(&mut *transaction).await.unwrap_err();
    let error = database.commit(transaction).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(database.list(&OutboxFilter::default(), 10).await.unwrap().is_empty());
}

/// The shorter commit has the same outcomes.
#[tokio::test]
async fn enqueue_and_commit_is_all_or_nothing() {
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
async fn deferred_constraint_violation_is_not_a_lost_connection() {
    let Some(database) = migrated().await else { return };
    let table = "CREATE TABLE owner (id int PRIMARY KEY);
                 CREATE TABLE pet (owner int REFERENCES owner DEFERRABLE INITIALLY DEFERRED)";
    sqlx::raw_sql(table).execute(database.pool()).await.unwrap();
    let mut transaction = database.begin().await.unwrap();
    sqlx::query("INSERT INTO pet VALUES (7)").execute(&mut *transaction).await.unwrap();
    let error = database.commit(transaction).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

/// A caller that is dropped during `BEGIN` must not leave an open transaction in the pool: statements of the next
/// caller outside a transaction would never be committed.
#[tokio::test]
async fn cancelled_begin_leaves_no_open_transaction() {
    let Some(database) = migrated().await else { return };
    database.begin().await.unwrap();
    for polls in 1..20 {
        cut_off(database.begin(), polls).await;
        let mut busy = Vec::new();
        while let Some(connection) = database.pool().try_acquire() {
            busy.push(connection);
        }
        for connection in &mut busy {
            // now() is the start of the transaction; for a statement outside one, the start of the statement.
            let times = sqlx::raw_sql("SELECT now() = statement_timestamp()").fetch_one(&mut **connection);
            let is_alone: bool = times.await.unwrap().get(0);
            assert!(is_alone, "the pool has a connection with an open transaction");
        }
    }
}

/// Polls `future` at most `polls` times, and drops it.
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
