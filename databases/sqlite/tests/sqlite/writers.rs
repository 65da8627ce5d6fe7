//! Writers: the caller's own transactions, many at once, and concurrent reads.

use std::time::Duration;

use landfall_core::adapter::{Decision, Settlement, Shard};
use landfall_core::{Database, ErrorKind, Key, Leases, OutboxQueue, OutboxView, OutboxWriter, Schema};
use landfall_sqlite::{Options, Sqlite};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};

use crate::folder::{SOON, TestFolder, lease, message};

#[tokio::test]
async fn enqueue_works_in_a_transaction_of_the_callers_pool() {
    let folder = TestFolder::new();
    let settings = SqliteConnectOptions::new()
        .filename(folder.path("own.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal);
    let pool = SqlitePoolOptions::new().connect_with(settings).await.unwrap();
    let database = Sqlite::from_pool(pool.clone(), Options::default()).unwrap();
    database.migrate().await.unwrap();
    sqlx::query("CREATE TABLE orders (id TEXT PRIMARY KEY)").execute(&pool).await.unwrap();

    for (id, commits) in [("o-1", true), ("o-2", false)] {
        let mut transaction = pool.begin().await.unwrap();
        sqlx::query("INSERT INTO orders (id) VALUES (?1)").bind(id).execute(&mut *transaction).await.unwrap();
        database.enqueue(&mut transaction, &[message(id, 1)]).await.unwrap();
        if commits {
            transaction.commit().await.unwrap();
        } else {
            transaction.rollback().await.unwrap();
        }
    }
    let entries = database.next(&lease(&database).await, 10).await.unwrap();
    let keys: Vec<_> = entries.iter().map(|entry| entry.message.as_ref().unwrap().key.clone().unwrap()).collect();
    assert_eq!(keys, [Key::new("o-1").unwrap()]);
}

#[tokio::test]
async fn batches_of_every_size_keep_their_order() {
    let folder = TestFolder::new();
    let database = folder.migrated().await;
    let leases = lease(&database).await;
    for size in [1, 7, 8, 63, 64, 65, 137, 200] {
        let messages: Vec<_> = (1..=size).map(|sequence| message("a", sequence)).collect();
        database.append(&messages).await.unwrap();
        let entries = database.next(&leases, 1000).await.unwrap();
        let settlements: Vec<_> = entries
            .iter()
            .map(|entry| Settlement { row: entry.row, shard: entry.shard, decision: Decision::Published })
            .collect();
        let read: Vec<_> = entries.into_iter().map(|entry| entry.message.unwrap()).collect();
        assert_eq!(read, messages, "{size} messages");
        assert_eq!(database.settle(&leases, &settlements).await.unwrap().len(), messages.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_in_two_processes_all_get_the_write_lock() {
    let folder = TestFolder::new();
    let databases = [folder.migrated().await, folder.open().await];
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..16_usize {
        let database = databases[writer % 2].clone();
        tasks.spawn(async move {
            for sequence in 1..=25 {
                database.append(&[message(&format!("writer-{writer}"), sequence)]).await.unwrap();
            }
        });
    }
    tokio::time::timeout(SOON * 3, tasks.join_all()).await.expect("no writer starves");
    assert_eq!(databases[0].stats().await.unwrap().pending, 16 * 25);
}

#[tokio::test]
async fn dropped_transaction_frees_the_write_lock() {
    let folder = TestFolder::new();
    let database = folder.migrated().await;
    for _ in 0..20 {
        let mut transaction = database.begin().await.unwrap();
        database.enqueue(&mut transaction, &[message("a", 1)]).await.unwrap();
        drop(transaction);
        let mut transaction = tokio::time::timeout(SOON, database.begin()).await.unwrap().unwrap();
        database.enqueue(&mut transaction, &[message("b", 1)]).await.unwrap();
        database.commit(transaction).await.unwrap();
    }
    assert_eq!(database.stats().await.unwrap().pending, 20);
}

#[tokio::test]
async fn reads_do_not_wait_for_a_writer() {
    let folder = TestFolder::new();
    let database = folder.migrated().await;
    database.append(&[message("a", 1)]).await.unwrap();
    let leases = lease(&database).await;
    let mut transaction = database.begin().await.unwrap();
    database.enqueue(&mut transaction, &[message("a", 2)]).await.unwrap();

    let reads = async {
        assert_eq!(database.next(&leases, 10).await.unwrap().len(), 1);
        assert_eq!(database.stats().await.unwrap().pending, 1);
        assert_eq!(database.held(Shard::LEASES).await.unwrap().len(), 1);
    };
    tokio::time::timeout(SOON, reads).await.expect("reads see what was committed, at once");
    database.commit(transaction).await.unwrap();
    assert_eq!(database.next(&leases, 10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn full_disk_is_reported_and_writes_nothing() {
    let folder = TestFolder::new();
    let database = folder.migrated().await;
    let mut transaction = database.begin().await.unwrap();
    database.enqueue(&mut transaction, &[message("a", 1)]).await.unwrap();
    // SQLite reports a file that may not grow like a full disk.
    sqlx::query("PRAGMA max_page_count = 1").execute(&mut *transaction).await.unwrap();
    let mut large = message("a", 2);
    large.payload = vec![7; 1024 * 1024].into();
    let error = database.enqueue(&mut transaction, &[large.clone()]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("the disk is full"), "{error}");
    // A caller that ignores the error must not commit the rest of the transaction, which SQLite rolled back.
    let error = database.commit(transaction).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("SQLite had rolled it back"), "{error}");
    assert_eq!(database.stats().await.unwrap().pending, 0);

    let mut transaction = database.begin().await.unwrap();
    sqlx::query("PRAGMA max_page_count = 1000000").execute(&mut *transaction).await.unwrap();
    database.enqueue(&mut transaction, &[large]).await.unwrap();
    database.commit(transaction).await.unwrap();
    assert_eq!(database.stats().await.unwrap().pending, 1, "writes succeed once there is space");
}

#[tokio::test]
async fn held_write_lock_is_unavailable() {
    let folder = TestFolder::new();
    let holder = folder.migrated().await;
    let settings = SqliteConnectOptions::new().filename(folder.path("landfall.db")).busy_timeout(Duration::ZERO);
    let pool = SqlitePoolOptions::new().connect_with(settings).await.unwrap();
    let database = Sqlite::from_pool(pool.clone(), Options::default()).unwrap();

    let held = holder.begin().await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    let error = database.enqueue(&mut transaction, &[message("a", 1)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.is_temporary() && error.to_string().contains("another connection held its lock"), "{error}");
    drop(transaction);

    // A transaction of the adapter waits instead, and gets the lock.
    let waiter = tokio::spawn(async move { database.append(&[message("a", 1)]).await });
    holder.commit(held).await.unwrap();
    tokio::time::timeout(SOON, waiter).await.expect("the lock is free").unwrap().unwrap();
}
