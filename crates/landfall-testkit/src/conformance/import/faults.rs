//! Import under faults: rollback, fencing, cancellation and lost connections.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use landfall_core::{Database, Holder, ImportSource, Leases};

use super::harness::{LONG, debezium, id, insert};
use super::{Harness, ImportFixture};

pub async fn rolled_back_row_is_never_imported<F: ImportFixture>(harness: Harness<F>) {
    harness.define(F::DIALECT.debezium).await;
    let mut transaction = harness.database.begin().await.unwrap();
    harness.fixture.execute(&mut transaction, &insert(1, "42", "{}")).await;
    drop(transaction);
    assert_eq!(harness.move_all(&debezium()).await.moved, 0);
    assert!(harness.publish().await.is_empty());
}

pub async fn stale_epoch_imports_nothing<F: ImportFixture>(harness: Harness<F>) {
    harness.define(F::DIALECT.debezium).await;
    harness.commit(&[&insert(1, "42", "{}")]).await;
    let import = harness.prepare(debezium()).await;
    let stale = harness.lease(&debezium(), "paused").await;
    harness.database.release(std::slice::from_ref(&stale)).await.unwrap();
    // The lease is free, then held by another, then held again under a new epoch: the stale one is never valid.
    assert_eq!(import.import(&stale, 10).await.unwrap().moved, 0);
    let other = harness.lease(&debezium(), "other").await;
    assert_eq!(import.import(&stale, 10).await.unwrap().moved, 0);
    harness.database.release(std::slice::from_ref(&other)).await.unwrap();
    let again = harness.lease(&debezium(), "paused").await;
    assert_eq!(import.import(&stale, 10).await.unwrap().moved, 0);
    assert_eq!(harness.count("SELECT count(*) FROM outbox").await, 1);
    assert_eq!(import.import(&again, 10).await.unwrap().moved, 1);
}

/// Two importers compete for the lease, which moves back and forth between them.
pub async fn two_importers_move_each_row_once<F: ImportFixture>(harness: Harness<F>) {
    const ROWS: u32 = 120;
    harness.define(F::DIALECT.debezium).await;
    let rows: Vec<String> = (0..ROWS).map(|number| insert(number, "k", "{}")).collect();
    harness.commit(&rows.iter().map(String::as_str).collect::<Vec<_>>()).await;

    let importer = async |name: &'static str| {
        let database = harness.fixture.open().await;
        let import = database.prepare_import(debezium()).await.unwrap();
        let (lease_name, holder) = (debezium().lease_name(), Holder(name.into()));
        let mut held = None;
        let mut empty = 0;
        while empty < 3 {
            // The previous lease is used too, whether it is still valid or not.
            held = database.acquire(&lease_name, &holder, LONG).await.unwrap().or(held);
            let Some(lease) = &held else {
                tokio::task::yield_now().await;
                continue;
            };
            match import.import(lease, 5).await {
                Ok(step) => empty = if step.moved == 0 { empty + 1 } else { 0 },
                Err(error) => assert!(error.is_temporary(), "{error}"),
            }
            database.release(std::slice::from_ref(lease)).await.unwrap();
        }
    };
    futures_util::future::join(importer("first"), importer("second")).await;
    // One importer may have ended while the other held the lease.
    harness.move_all(&debezium()).await;
    assert_imported_once(&harness, ROWS).await;
}

/// Cancelling an import drops its connection at that point, as a crash would.
pub async fn cancelled_import_loses_and_doubles_nothing<F: ImportFixture>(harness: Harness<F>) {
    const ROWS: u32 = 150;
    harness.define(F::DIALECT.debezium).await;
    let rows: Vec<String> = (0..ROWS).map(|number| insert(number, "k", "{}")).collect();
    harness.commit(&rows.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let import = harness.prepare(debezium()).await;
    let lease = harness.lease(&debezium(), "importer").await;
    for step in 0..60_u64 {
        let timeout = Duration::from_micros(100 + 150 * step);
        if let Ok(Err(error)) = tokio::time::timeout(timeout, import.import(&lease, 3)).await {
            assert!(error.is_temporary(), "{error}");
        }
    }
    harness.database.release(&[lease]).await.unwrap();
    harness.move_all(&debezium()).await;
    assert_imported_once(&harness, ROWS).await;
}

/// Connections are killed during statements and commits. The rows show the outcome of each transaction.
pub async fn import_with_killed_connections_loses_and_doubles_nothing<F: ImportFixture>(harness: Harness<F>) {
    const ROWS: u32 = 200;
    const KILLS: usize = 8;
    harness.define(F::DIALECT.debezium).await;
    let rows: Vec<String> = (0..ROWS).map(|number| insert(number, "k", "{}")).collect();
    harness.commit(&rows.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let import = harness.prepare(debezium()).await;
    let lease = harness.lease(&debezium(), "importer").await;
    let killed = AtomicBool::new(false);
    let killing = async {
        for _ in 0..KILLS {
            harness.fixture.kill_connections().await;
        }
        killed.store(true, Ordering::SeqCst);
    };
    let moving = async {
        let mut empty = 0;
        // Two empty steps after the last kill: the importer has recovered.
        while empty < 2 {
            match import.import(&lease, 2).await {
                Ok(step) if step.moved == 0 && killed.load(Ordering::SeqCst) => empty += 1,
                Ok(_) => empty = 0,
                Err(error) => assert!(error.is_temporary(), "{error}"),
            }
        }
    };
    futures_util::future::join(killing, moving).await;
    assert_imported_once(&harness, ROWS).await;
}

/// If the rows cannot be enqueued, they stay in the source table.
pub async fn failed_enqueue_leaves_the_source_rows<F: ImportFixture>(harness: Harness<F>) {
    harness.define(F::DIALECT.debezium).await;
    harness.commit(&[&insert(1, "42", "{}")]).await;
    let import = harness.prepare(debezium()).await;
    let lease = harness.lease(&debezium(), "importer").await;
    harness.define("ALTER TABLE landfall_outbox RENAME TO elsewhere").await;
    import.import(&lease, 10).await.unwrap_err();
    assert_eq!(harness.count("SELECT count(*) FROM outbox").await, 1);
    harness.define("ALTER TABLE elsewhere RENAME TO landfall_outbox").await;
    assert_eq!(import.import(&lease, 10).await.unwrap().moved, 1);
    assert_imported_once(&harness, 0).await;
}

/// Asserts that rows `0..rows` were imported, none of them twice, and that the source table is empty.
async fn assert_imported_once<F: ImportFixture>(harness: &Harness<F>, rows: u32) {
    assert_eq!(harness.count("SELECT count(*) FROM outbox").await, 0, "rows are left in the source table");
    let messages = harness.messages().await;
    let ids: HashSet<String> = messages.iter().map(|message| message.id.to_string()).collect();
    assert_eq!(ids.len(), messages.len(), "a row was imported twice");
    assert!((0..rows).all(|number| ids.contains(&id(number))), "a row was lost");
}
