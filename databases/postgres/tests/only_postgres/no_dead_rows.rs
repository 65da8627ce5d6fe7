//! What the documentation says about the size of the outbox. No row of a partition is deleted, and no dead row is left.
//! An idle relay empties the partitions. A query for one state costs what that state costs.

use std::time::Duration;

use landfall_core::adapter::{Decision, Lease};
use landfall_core::{Expiring, Housekeeping, OutboxFilter, OutboxQueue, OutboxState, OutboxView, Schema};
use landfall_postgres::{Options, Postgres};
use landfall_testkit::eventually;
use landfall_testkit::servers::fresh_postgres_database;

use crate::stage::{LONG, SOON, another, lease_all, message, migrated, open, publish_everything, settlement};

/// One connection: its statistics arrive together, at the latest when it closes.
async fn with_one_connection(url: &str, keep_sent: Option<Duration>) -> Postgres {
    Postgres::connect(url, Options { max_connections: 1, keep_sent, ..Options::default() }).await.unwrap()
}

/// Sends 1,200 messages in transactions of 100, with housekeeping in between, as a relay with its housekeeper does.
async fn load_and_keep_house(database: &Postgres) {
    let leases = lease_all(database, "one", LONG).await;
    for round in 0..12 {
        let messages: Vec<_> = (0..100).map(|n| message(&format!("k{}", n % 7), round * 100 + n)).collect();
        database.append(&messages).await.unwrap();
        publish_everything(database, &leases).await;
        while database.remove_expired(Expiring::Sent, Duration::ZERO, 50).await.unwrap() >= 50 {}
    }
    // One stays, so that no partition is truncated.
    database.append(&[message("last", 0)]).await.unwrap();
}

/// Inserted, deleted and dead rows of the partitions, as PostgreSQL counts them.
async fn counted(database: &Postgres) -> (i64, i64, i64) {
    sqlx::query_as(
        "SELECT sum(n_tup_ins)::bigint, sum(n_tup_upd + n_tup_del)::bigint, sum(n_dead_tup)::bigint
         FROM pg_stat_user_tables WHERE relname ~ '^landfall_outbox_[0-3]$'",
    )
    .fetch_one(database.pool())
    .await
    .unwrap()
}

async fn assert_no_row_is_deleted(url: &str, keep_sent: Option<Duration>) {
    let database = with_one_connection(url, keep_sent).await;
    database.migrate().await.unwrap();
    load_and_keep_house(&database).await;
    database.pool().close().await;
    let observer = open(url).await;
    eventually(SOON, "the statistics have arrived", async || counted(&observer).await.0 == 1201).await;
    assert_eq!(counted(&observer).await, (1201, 0, 0));
    let stats = observer.stats().await.unwrap();
    assert_eq!((stats.pending, stats.published), (1, 1200));
}

#[tokio::test]
async fn load_and_housekeeping_leave_no_dead_rows() {
    let Some(url) = fresh_postgres_database().await else { return };
    assert_no_row_is_deleted(&url, None).await;
}

#[tokio::test]
async fn retention_of_kept_messages_leaves_no_dead_rows() {
    let Some(url) = fresh_postgres_database().await else { return };
    assert_no_row_is_deleted(&url, Some(LONG)).await;
    let filter = OutboxFilter { state: Some(OutboxState::Sent), ..OutboxFilter::default() };
    assert!(open(&url).await.list(&filter, 10).await.unwrap().is_empty(), "expired messages are still shown");
}

/// Polls as an idle relay does, until the partitions have no pages.
async fn poll_until_truncated(database: &Postgres, leases: &[Lease]) {
    eventually(SOON, "the partitions are truncated", async || {
        assert!(database.next(leases, 100).await.unwrap().is_empty());
        let bytes: i64 = sqlx::query_scalar(
            "SELECT sum(pg_relation_size(oid))::bigint FROM pg_class WHERE relname ~ '^landfall_outbox_[0-3]$'",
        )
        .fetch_one(database.pool())
        .await
        .unwrap();
        bytes == 0
    })
    .await;
}

#[tokio::test]
async fn idle_relay_truncates_the_partitions_of_a_drained_outbox() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    let messages: Vec<_> = (0..500).map(|n| message(&format!("k{}", n % 7), n)).collect();
    database.append(&messages).await.unwrap();
    publish_everything(&database, &leases).await;
    poll_until_truncated(&database, &leases).await;
    // The outbox works on.
    let next = message("k1", 500);
    database.append(std::slice::from_ref(&next)).await.unwrap();
    assert_eq!(publish_everything(&database, &leases).await, [next.id]);
    assert_eq!(database.stats().await.unwrap().published, 501);
}

/// A relay that stopped right after its last settlement leaves sent rows, and its successor has nothing to settle.
#[tokio::test]
async fn idle_relay_truncates_what_an_earlier_process_left() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    let stopped = another(&database).await;
    stopped.append(&[message("a", 1), message("b", 1)]).await.unwrap();
    publish_everything(&stopped, &leases).await;
    stopped.pool().close().await;
    poll_until_truncated(&database, &leases).await;
}

#[tokio::test]
async fn idle_rotation_archives_kept_messages() {
    let Some(url) = fresh_postgres_database().await else { return };
    let options = Options { max_connections: 4, keep_sent: Some(LONG), ..Options::default() };
    let database = Postgres::connect(&url, options).await.unwrap();
    database.migrate().await.unwrap();
    let leases = lease_all(&database, "one", LONG).await;
    let messages: Vec<_> = (1..=3).map(|n| message("a", n)).collect();
    database.append(&messages).await.unwrap();
    publish_everything(&database, &leases).await;
    let filter = OutboxFilter { state: Some(OutboxState::Sent), ..OutboxFilter::default() };
    let first = database.list(&filter, 10).await.unwrap()[0].row;
    assert_eq!(database.remove_these_sent(&[first]).await.unwrap(), 1);
    poll_until_truncated(&database, &leases).await;
    let kept: Vec<_> = database.list(&filter, 10).await.unwrap().iter().map(|row| row.message_id).collect();
    assert_eq!(kept, [messages[1].id, messages[2].id], "the removed one was archived, or another was lost");
    let left: i64 =
        sqlx::query_scalar("SELECT count(*) FROM landfall_outbox_removed").fetch_one(database.pool()).await.unwrap();
    assert_eq!(left, 0, "marks outlive their partition");
}

/// The check of a single key is a function call with two lookups. For a million rows it took minutes.
#[tokio::test]
async fn status_view_does_not_check_keys_one_by_one() {
    let Some(database) = migrated().await else { return };
    let leases = lease_all(&database, "one", LONG).await;
    let messages: Vec<_> = (0..20).map(|n| message(&format!("k{}", n % 4), n)).collect();
    database.append(&messages).await.unwrap();
    let entries = database.next(&leases, 1).await.unwrap();
    let retry = Decision::Retry { after: LONG, error: "busy".into() };
    database.settle(&leases, &[settlement(&entries[0], retry)]).await.unwrap();

    let mut connection = database.pool().acquire().await.unwrap();
    for (condition, expected) in [
        ("true", 20),
        ("state = 'sent'", 0),
        ("state = 'pending'", 15),
        ("state = 'waiting'", 4),
        ("state = 'retrying'", 1),
    ] {
        sqlx::raw_sql("BEGIN; SET LOCAL track_functions = 'all'").execute(&mut *connection).await.unwrap();
        let count = format!("SELECT count(*) FROM landfall_outbox_status WHERE {condition}");
        let rows: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(count)).fetch_one(&mut *connection).await.unwrap();
        let calls: i64 = sqlx::query_scalar(
            "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_xact_user_functions
             WHERE funcname = 'landfall_outbox_is_blocked'",
        )
        .fetch_one(&mut *connection)
        .await
        .unwrap();
        sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await.unwrap();
        assert_eq!((rows, calls), (expected, 0), "{condition}");
    }
}
