//! The relay and the consumer read few rows beyond those they need, with any statistics: a table that is empty at one
//! moment is full at the next.

use landfall_core::adapter::Decision;
use landfall_core::{DeadLetterFilter, DeadLetters, GroupName, HalfMessages, Inbox, Key, OutboxQueue};
use landfall_mysql::{MySql, Options};
use sqlx::mysql::MySqlPoolOptions;

use crate::stage::{LONG, lease_all, migrated, settlement};

/// Opens an instance with a single connection, whose counters include everything it does.
async fn counted(database: &MySql) -> MySql {
    let target = (*database.pool().connect_options()).clone();
    let pool = MySqlPoolOptions::new().max_connections(1).connect_with(target).await.unwrap();
    MySql::from_pool(pool, Options::default())
}

/// Returns the number of rows that this connection has read.
async fn rows_read(database: &MySql) -> i64 {
    let status: Vec<(String, String)> =
        sqlx::query_as("SHOW SESSION STATUS LIKE 'Handler_read%'").fetch_all(database.pool()).await.unwrap();
    status.iter().map(|(_, value)| value.parse::<i64>().unwrap()).sum()
}

async fn run(database: &MySql, statement: &'static str) {
    sqlx::raw_sql(statement).execute(database.pool()).await.unwrap();
}

/// Twenty thousand numbers, from a cross join of ten.
const LOAD: &str = "
    CREATE TABLE ten (n INT);
    INSERT INTO ten VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9);
    CREATE TABLE many (n INT NOT NULL PRIMARY KEY);
    INSERT INTO many SELECT a.n + 10 * b.n + 100 * c.n + 1000 * d.n + 10000 * e.n
        FROM ten a, ten b, ten c, ten d, ten e WHERE e.n < 2";

#[tokio::test]
async fn batch_is_read_and_settled_by_the_primary_key() {
    let Some(database) = migrated().await else { return };
    let database = counted(&database).await;
    let leases = lease_all(&database, "one", LONG).await;
    for _ in 0..3 {
        assert!(database.next(&leases, 500).await.unwrap().is_empty());
    }
    run(&database, LOAD).await;
    let fill = "INSERT INTO landfall_outbox (topic, `key`, payload)
                SELECT 'orders', CONCAT('k', n % 1000), '' FROM many ORDER BY n";
    run(&database, fill).await;
    // Some rows wait for their next attempt, and some keys are held.
    let trouble = "UPDATE landfall_outbox SET attempts = 1, next_attempt_at = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR
                   WHERE id <= 400;
                   INSERT INTO landfall_held_key (consumer_group, topic, `key`)
                   SELECT '', 'orders', CONCAT('k', 500 + n) FROM ten";
    run(&database, trouble).await;

    let before = rows_read(&database).await;
    let entries = database.next(&leases, 500).await.unwrap();
    let after = rows_read(&database).await;
    assert_eq!(entries.len(), 500);
    // The skipped rows, a lookup of each held key, and the list of four hundred blocked keys.
    assert!(after - before < 6000, "{} rows were read for a batch of 500", after - before);

    let settlements: Vec<_> = entries.iter().map(|entry| settlement(entry, Decision::Published)).collect();
    let before = rows_read(&database).await;
    assert_eq!(database.settle(&leases, &settlements).await.unwrap().len(), 500);
    let after = rows_read(&database).await;
    assert!(after - before < 2500, "{} rows were read to settle 500", after - before);
}

/// Consumers poll for redriven messages. Messages that wait behind a parked dead letter must cost them nothing.
#[tokio::test]
async fn waiting_dead_letters_are_not_read_to_find_a_due_one() {
    let Some(database) = migrated().await else { return };
    let database = counted(&database).await;
    run(&database, LOAD).await;
    let fill = "INSERT INTO landfall_dead_letter (consumer_group, message_id, topic, `key`, kind, mode, headers, \
         payload,
                    created_at, status, error_code, error, attempts)
                SELECT 'stock', UNHEX(LPAD(HEX(n), 32, '0')), 'orders', IF(n = 19999, 'cold', 'hot'), 'message',
                    'effectively-once', '{}',
                    '', UTC_TIMESTAMP(6), IF(n IN (0, 19999), 'parked', 'waiting'), 'X', 'x', 1
                FROM many ORDER BY n";
    run(&database, fill).await;
    let cold = DeadLetterFilter { key: Some(Key::new("cold").unwrap()), ..Default::default() };
    assert_eq!(database.redrive(&cold, "alice").await.unwrap().redriven.len(), 1);

    let before = rows_read(&database).await;
    let mut connection = database.pool().acquire().await.unwrap();
    let item = database.next_redriven(&mut connection, &GroupName::new("stock").unwrap(), &[]).await.unwrap().unwrap();
    drop(connection);
    let after = rows_read(&database).await;
    assert_eq!(item.message.key.unwrap().as_str(), "cold");
    assert!(after - before < 50, "{} letters were read to find one", after - before);
}

/// The coordinator polls for due check-backs. Undecided messages that are not due must cost it nothing.
#[tokio::test]
async fn undecided_messages_that_are_not_due_are_not_read() {
    let Some(database) = migrated().await else { return };
    let database = counted(&database).await;
    run(&database, LOAD).await;
    let fill = "INSERT INTO landfall_half_message (id, state, has_message, fingerprint, topic, kind, mode, headers,
                    created_at, payload, next_check_at)
                SELECT UNHEX(LPAD(HEX(n), 32, '0')), 'prepared', TRUE, UNHEX(SHA2(n, 256)), 'orders', 'message',
                    'effectively-once', '{}', UTC_TIMESTAMP(6), '',
                    UTC_TIMESTAMP(6) + INTERVAL IF(n < 5, -1, 3600) SECOND
                FROM many ORDER BY n";
    run(&database, fill).await;
    let before = rows_read(&database).await;
    let due = database.claim_due(10, LONG).await.unwrap();
    let after = rows_read(&database).await;
    assert_eq!(due.len(), 5);
    assert!(after - before < 100, "{} rows were read to claim 5", after - before);
}
