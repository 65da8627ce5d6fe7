//! The relay's speed: its two functions use indexes whatever the statistics say, and dead rows do not pile up. A plan
//! that PostgreSQL cached while the table was empty must serve when it is full: that is how every deployment begins.

use landfall_core::{DeadLetterFilter, DeadLetters, Decision, GroupName, Inbox, Key, OutboxQueue, Settlement, Shard};
use landfall_testkit::eventually;
use sqlx::PgConnection;

use crate::stage::{LONG, SOON, lease_all, migrated};

/// Reads a batch and settles it. One lease stands for every shard here: which shard it is for is the caller's word.
const RELAY_ONCE: &str = "
    WITH given AS (SELECT array_agg(n::smallint) AS shards FROM generate_series(0, 15) n)
    SELECT cardinality(landfall_outbox_settle(
        array_fill('outbox/0'::text, '{16}'), array_fill('one'::text, '{16}'), array_fill(1::bigint, '{16}'), shards,
        ARRAY(SELECT id FROM landfall_outbox_next(shards, 500)),
        '{}', '{}', '{}', '{}', '{}', '{}'))
    FROM given";

async fn relay_once(connection: &mut PgConnection) -> i32 {
    sqlx::query_scalar(RELAY_ONCE).fetch_one(connection).await.unwrap()
}

async fn run(connection: &mut PgConnection, statement: &'static str) {
    sqlx::raw_sql(statement).execute(connection).await.unwrap();
}

/// Rows of the outbox that sequential scans have read on this connection and that the server has not summed up yet,
/// which it does between transactions.
async fn read_sequentially(connection: &mut PgConnection) -> i64 {
    sqlx::query_scalar(
        "SELECT coalesce(sum(seq_tup_read), 0)::bigint FROM pg_stat_xact_user_tables WHERE relname = 'landfall_outbox'",
    )
    .fetch_one(connection)
    .await
    .unwrap()
}

#[tokio::test]
async fn a_plan_made_for_an_empty_table_does_not_scan_a_full_one() {
    let Some(database) = migrated().await else { return };
    let mut connection = database.pool().acquire().await.unwrap();
    run(&mut connection, "ALTER TABLE landfall_outbox SET (autovacuum_enabled = off)").await;
    run(&mut connection, "INSERT INTO landfall_lease VALUES ('outbox/0', 'one', 1, now())").await;
    run(&mut connection, "VACUUM ANALYZE").await;
    for _ in 0..10 {
        assert_eq!(relay_once(&mut connection).await, 0);
    }
    let load = "INSERT INTO landfall_outbox (topic, key, payload)
                SELECT 'orders', 'k' || n % 1000, '' FROM generate_series(1, 20000) n";
    run(&mut connection, load).await;
    // Some rows wait for their next attempt, and some keys are held.
    let retry = "UPDATE landfall_outbox SET attempts = 1, next_attempt_at = now() + interval '1 hour'
                 WHERE id % 1000 < 10 AND id < 5000;
                 INSERT INTO landfall_held_key (consumer_group, topic, key)
                 SELECT '', 'orders', 'k' || n FROM generate_series(10, 19) n";
    run(&mut connection, retry).await;

    run(&mut connection, "BEGIN").await;
    let before = read_sequentially(&mut connection).await;
    assert_eq!(relay_once(&mut connection).await, 500);
    assert_eq!(relay_once(&mut connection).await, 500);
    assert_eq!(read_sequentially(&mut connection).await, before, "the whole table was read for a batch");
    run(&mut connection, "ROLLBACK").await;

    let mut total = 0;
    loop {
        match relay_once(&mut connection).await {
            0 => break,
            settled => total += settled,
        }
    }
    assert_eq!(total, 20_000 - 20 * 20, "everything but the rows of the twenty blocked keys");
}

#[tokio::test]
async fn many_settled_rows_are_vacuumed_without_waiting_for_autovacuum() {
    let Some(database) = migrated().await else { return };
    let mut connection = database.pool().acquire().await.unwrap();
    run(&mut connection, "ALTER TABLE landfall_outbox SET (autovacuum_enabled = off)").await;
    let load = "INSERT INTO landfall_outbox (topic, key, payload)
                SELECT 'orders', 'k' || n % 1000, '' FROM generate_series(1, 50000) n";
    run(&mut connection, load).await;
    let leases = lease_all(&database, "one", LONG).await;
    let published = |row| Settlement { row, shard: Shard(0), decision: Decision::Published };
    let rows: Vec<_> = (1..=50_000).map(published).collect();
    for batch in rows.chunks(10_000) {
        assert_eq!(database.settle(&leases, batch).await.unwrap().len(), batch.len());
    }
    eventually(SOON, "the outbox is vacuumed", async || {
        let vacuums: i64 =
            sqlx::query_scalar("SELECT vacuum_count FROM pg_stat_user_tables WHERE relname = 'landfall_outbox'")
                .fetch_one(&mut *connection)
                .await
                .unwrap();
        vacuums > 0
    })
    .await;
}

/// A consumer asks for redriven work all the time. What waits behind a parked letter must cost it nothing.
#[tokio::test]
async fn letters_that_wait_are_not_read_to_find_one_that_is_due() {
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
