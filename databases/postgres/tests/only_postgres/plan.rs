//! The relay's plans: its functions use indexes with any statistics, and read no more rows than they return. A plan
//! that PostgreSQL cached for an empty table must work for a full one, since every deployment begins like that.

use landfall_core::{DeadLetterFilter, DeadLetters, GroupName, Inbox, Key, OutboxQueue};
use landfall_testkit::eventually;
use sqlx::PgConnection;

use crate::stage::{LONG, SOON, due, lease_all, message, migrated, publish_everything};

const ALL: &str = "'{0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}'";

async fn run(connection: &mut PgConnection, statement: &str) {
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(connection).await.unwrap();
}

async fn count(connection: &mut PgConnection, statement: &str) -> i64 {
    sqlx::query_scalar(sqlx::AssertSqlSafe(statement)).fetch_one(connection).await.unwrap()
}

/// Counts the rows of the outbox and its progress that this connection has read in this transaction, by scans and
/// through indexes.
async fn read(connection: &mut PgConnection) -> (i64, i64) {
    sqlx::query_as(
        "SELECT coalesce(sum(seq_tup_read), 0)::bigint, coalesce(sum(idx_tup_fetch), 0)::bigint
         FROM pg_stat_xact_user_tables WHERE relname ~ '^landfall_outbox_(progress_)?[0-3]$'",
    )
    .fetch_one(connection)
    .await
    .unwrap()
}

/// Runs a statement that returns a count, and returns how many rows it read.
async fn reads(connection: &mut PgConnection, statement: &str, expected: i64) -> i64 {
    run(connection, "BEGIN").await;
    let before = read(connection).await;
    assert_eq!(count(connection, statement).await, expected, "{statement}");
    let after = read(connection).await;
    run(connection, "ROLLBACK").await;
    assert_eq!(after.0, before.0, "the whole table was read: {statement}");
    after.1 - before.1
}

#[tokio::test]
async fn plan_for_an_empty_table_does_not_scan_a_full_one() {
    let Some(database) = migrated().await else { return };
    let mut connection = database.pool().acquire().await.unwrap();
    let s1: String =
        sqlx::query_scalar("SELECT pg_current_snapshot()::text").fetch_one(&mut *connection).await.unwrap();
    let next = format!("SELECT count(id) FROM landfall_outbox_next({ALL}, '{s1}', 500, 1000, '{{}}', '{{}}')");
    let walk =
        format!("SELECT count(id) FROM landfall_outbox_walk({ALL}, '{s1}', pg_current_snapshot(), 10000, 20000, 500)");
    let jump = format!("SELECT landfall_outbox_jump({ALL}, '{s1}', pg_current_snapshot(), 15000)");
    let pick = "SELECT count(id) FROM landfall_outbox_pick(ARRAY(SELECT generate_series(1, 20000, 40)))".to_owned();
    run(&mut connection, "VACUUM ANALYZE").await;
    for statement in [&next, &walk, &pick].into_iter().cycle().take(30) {
        assert_eq!(count(&mut connection, statement).await, 0);
    }
    let load = "INSERT INTO landfall_outbox (topic, key, payload)
                SELECT 'orders', 'k' || n % 1000, '' FROM generate_series(1, 20000) n";
    run(&mut connection, load).await;

    let fetched = reads(&mut connection, &next, 0).await;
    assert!(fetched <= 1001, "{fetched} rows were read to see that there are more than a thousand");
    assert!(reads(&mut connection, &walk, 500).await <= 510);
    assert!(reads(&mut connection, &jump, 15001).await <= 10);
    assert!(reads(&mut connection, &pick, 500).await <= 510);
}

/// The cost of a read depends on the rows returned, not on settled rows or on the age of the oldest transaction.
#[tokio::test]
async fn old_transactions_and_settled_rows_do_not_slow_reads() {
    let Some(database) = migrated().await else { return };
    let mut connection = database.pool().acquire().await.unwrap();
    let mut old = database.pool().begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
    let old_xid: String = sqlx::query_scalar("SELECT pg_current_xact_id()::text").fetch_one(&mut *old).await.unwrap();
    let load = "INSERT INTO landfall_outbox (topic, key, payload)
                SELECT 'orders', 'k' || n % 1000, '' FROM generate_series(1, 5000) n";
    run(&mut connection, load).await;
    let leases = lease_all(&database, "one", LONG).await;
    let mut settled = 0;
    while settled < 5000 {
        settled += publish_everything(&database, &leases).await.len();
    }
    let (id, xid): (i64, String) =
        sqlx::query_as("SELECT id, xid::text FROM landfall_outbox_mark()").fetch_one(&mut *connection).await.unwrap();
    // Transactions of other tests count as well: if one is older than the watermark and ends after the next snapshot,
    // one read goes back to where it began.
    let others = format!(
        "SELECT count(*) FROM pg_snapshot_xip(pg_current_snapshot()) AS open (xid) WHERE xid < '{xid}' AND xid <> \
         '{old_xid}'"
    );
    eventually(SOON, "transactions older than the watermark have ended", async || {
        count(&mut database.pool().acquire().await.unwrap(), &others).await == 0
    })
    .await;
    database.append(&[message("a", 0)]).await.unwrap();
    publish_everything(&database, &leases).await;
    let messages: Vec<_> = (1..=10).map(|n| message("a", n)).collect();
    database.append(&messages).await.unwrap();
    let place = "SELECT s1::text FROM landfall_outbox_place ORDER BY n DESC LIMIT 1";
    let s1: String = sqlx::query_scalar(place).fetch_one(&mut *connection).await.unwrap();
    let next = format!("SELECT count(id) FROM landfall_outbox_next({ALL}, '{s1}', 500, 1000, '{{{id}}}', '{{{xid}}}')");
    let fetched = reads(&mut connection, &next, 10).await;
    assert!(fetched <= 40, "{fetched} rows were read to find ten");
    assert_eq!(due(&database, &leases).await.len(), 10);
    old.rollback().await.unwrap();
}

/// Every rotation check reads the shards' progress.
#[tokio::test]
async fn shard_progress_is_read_from_the_newest_rows() {
    let Some(database) = migrated().await else { return };
    let mut connection = database.pool().acquire().await.unwrap();
    let settle =
        format!("INSERT INTO landfall_outbox_progress (shards, s1) SELECT {ALL}, '3:3:' FROM generate_series(1, 3000)");
    run(&mut connection, &settle).await;
    let place = "SELECT count(*) FROM landfall_outbox_place WHERE n = (SELECT max(n) FROM landfall_outbox_progress)";
    for _ in 0..2 {
        let fetched = reads(&mut connection, place, 16).await;
        assert!(fetched <= 40, "{fetched} rows were read to find where sixteen shards are");
        run(&mut connection, "ANALYZE").await;
    }
}

/// Relays check repeatedly whether a partition can be truncated while they read it.
#[tokio::test]
async fn unsettled_partition_is_not_scanned() {
    let Some(database) = migrated().await else { return };
    let mut connection = database.pool().acquire().await.unwrap();
    let load = "INSERT INTO landfall_outbox (topic, key, payload)
                SELECT 'orders', 'k' || n % 1000, '' FROM generate_series(1, 20000) n";
    run(&mut connection, load).await;
    let leases = lease_all(&database, "one", LONG).await;
    assert!(!publish_everything(&database, &leases).await.is_empty());
    let settled = "SELECT landfall_outbox_part_is_settled('landfall_outbox_0')::integer::bigint";
    let fetched = reads(&mut connection, settled, 0).await;
    assert!(fetched <= 40, "{fetched} rows were read to see that not everything is sent");
    while !publish_everything(&database, &leases).await.is_empty() {}
    assert_eq!(count(&mut connection, settled).await, 1, "now every row is settled");
}

/// Consumers poll for redriven messages. Messages that wait behind a parked dead letter must cost them nothing.
#[tokio::test]
async fn waiting_dead_letters_are_not_read_to_find_a_due_one() {
    let Some(database) = migrated().await else { return };
    let mut connection = database.pool().acquire().await.unwrap();
    let load = "INSERT INTO landfall_dead_letter (consumer_group, message_id, topic, key, kind, mode, headers, payload,
                    created_at, status, error_code, error, attempts)
                SELECT 'stock', gen_random_uuid(), 'orders', CASE n WHEN 20000 THEN 'cold' ELSE 'hot' END, 'message',
                    'effectively-once', '{}', '', now(), CASE WHEN n IN (1, 20000) THEN 'parked' ELSE 'waiting' END,
                    'X', 'x', 1
                FROM generate_series(1, 20000) n";
    run(&mut connection, load).await;
    let cold = DeadLetterFilter { key: Some(Key::new("cold").unwrap()), ..Default::default() };
    assert_eq!(database.redrive(&cold, "alice").await.unwrap().redriven.len(), 1);

    run(&mut connection, "BEGIN").await;
    let read = "SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::bigint FROM pg_stat_xact_user_tables
                WHERE relname = 'landfall_dead_letter'";
    let before: i64 = sqlx::query_scalar(read).fetch_one(&mut *connection).await.unwrap();
    let item = database.next_redriven(&mut connection, &GroupName::new("stock").unwrap(), &[]).await.unwrap().unwrap();
    let after: i64 = sqlx::query_scalar(read).fetch_one(&mut *connection).await.unwrap();
    assert_eq!(item.message.key.unwrap().as_str(), "cold");
    assert!(after - before < 10, "{} letters were read to find one", after - before);
}
