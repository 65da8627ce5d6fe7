//! Deadlocks: the server rolls one transaction back, and the adapter retries its own.

use landfall_core::adapter::Decision;
use landfall_core::{Database, DeadLetterFilter, DeadLetters, ErrorCode, ErrorKind, OutboxQueue};

use crate::stage::{LONG, SOON, lease_all, message, migrated, settlement, until_blocked};

/// A settlement locks row 1 and requests row 2; another transaction has row 2 and requests row 1. The server rolls the
/// settlement back, since the other has changed more. The settlement is retried and succeeds.
#[tokio::test(flavor = "multi_thread")]
async fn deadlocked_settlement_is_retried() {
    let Some(database) = migrated().await else { return };
    let messages = [message("a", 1), message("b", 1)];
    database.append(&messages).await.unwrap();
    let leases = lease_all(&database, "one", LONG).await;
    let entries = database.next(&leases, 10).await.unwrap();

    let mut other = database.begin().await.unwrap();
    // Weight: the server rolls back the transaction that has changed fewer rows.
    sqlx::raw_sql("CREATE TEMPORARY TABLE heavy (n INT) ENGINE = InnoDB").execute(&mut *other).await.unwrap();
    sqlx::raw_sql("START TRANSACTION").execute(&mut *other).await.unwrap();
    let heavy = "INSERT INTO landfall_audit (actor, action, message_id) VALUES ('test', 'weight', '0123456789abcdef')";
    for _ in 0..50 {
        sqlx::query(heavy).execute(&mut *other).await.unwrap();
    }
    let lock = "SELECT id FROM landfall_outbox WHERE id = ? FOR UPDATE";
    sqlx::query(lock).bind(entries[1].row).execute(&mut *other).await.unwrap();

    let park = || Decision::Park { code: ErrorCode::TOO_LARGE, error: "too large".into(), holds_key: true };
    let settlements = vec![settlement(&entries[0], park()), settlement(&entries[1], park())];
    let (relay, given) = (database.clone(), leases.clone());
    let settling = tokio::spawn(async move { relay.settle(&given, &settlements).await });
    until_blocked(&database).await;
    // This completes the deadlock: the settlement is rolled back, and this statement succeeds.
    sqlx::query(lock).bind(entries[0].row).execute(&mut *other).await.unwrap();
    sqlx::raw_sql("ROLLBACK").execute(&mut *other).await.unwrap();

    let settled = tokio::time::timeout(SOON, settling).await.unwrap().unwrap().expect("it was done again");
    assert_eq!(settled.len(), 2);
    assert_eq!(database.find(&DeadLetterFilter::default(), 10).await.unwrap().len(), 2);
}

/// Only the caller can retry its own transaction; the error's kind says that it may.
#[tokio::test(flavor = "multi_thread")]
async fn lock_timeout_is_unavailable() {
    let Some(database) = migrated().await else { return };
    database.append(&[message("a", 1)]).await.unwrap();
    let leases = lease_all(&database, "one", LONG).await;
    let entries = database.next(&leases, 10).await.unwrap();
    let impatient = crate::stage::with(&database, landfall_mysql::Options::default()).await;
    let mut connections = Vec::new();
    for _ in 0..4 {
        let mut connection = impatient.pool().acquire().await.unwrap();
        sqlx::raw_sql("SET innodb_lock_wait_timeout = 1").execute(&mut *connection).await.unwrap();
        connections.push(connection);
    }
    drop(connections);

    let mut other = database.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM landfall_outbox FOR UPDATE").execute(&mut *other).await.unwrap();
    let error = impatient.settle(&leases, &[settlement(&entries[0], Decision::Published)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.is_temporary());
    sqlx::raw_sql("ROLLBACK").execute(&mut *other).await.unwrap();
    let settled = impatient.settle(&leases, &[settlement(&entries[0], Decision::Published)]).await.unwrap();
    assert_eq!(settled, [entries[0].row]);
}
