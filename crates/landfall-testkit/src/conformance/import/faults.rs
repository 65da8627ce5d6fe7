//! What must not happen when something goes wrong half-way.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use landfall_core::{Database, Holder, ImportSource, Leases};

use super::stage::{LONG, debezium, id, insert};
use super::{ImportFixture, Stage};

pub async fn a_rolled_back_row_is_never_moved<F: ImportFixture>(stage: Stage<F>) {
    stage.define(F::DIALECT.debezium).await;
    let mut transaction = stage.database.begin().await.unwrap();
    stage.fixture.execute(&mut transaction, &insert(1, "42", "{}")).await;
    drop(transaction);
    assert_eq!(stage.move_all(&debezium()).await.moved, 0);
    assert!(stage.publish().await.is_empty());
}

pub async fn a_stale_epoch_moves_nothing<F: ImportFixture>(stage: Stage<F>) {
    stage.define(F::DIALECT.debezium).await;
    stage.commit(&[&insert(1, "42", "{}")]).await;
    let import = stage.prepare(debezium()).await;
    let stale = stage.lease(&debezium(), "paused").await;
    stage.database.release(std::slice::from_ref(&stale)).await.unwrap();
    // Free, somebody else's, and its own again under a new epoch: none of them is the lease that it had.
    assert_eq!(import.import(&stale, 10).await.unwrap().moved, 0);
    let other = stage.lease(&debezium(), "other").await;
    assert_eq!(import.import(&stale, 10).await.unwrap().moved, 0);
    stage.database.release(std::slice::from_ref(&other)).await.unwrap();
    let again = stage.lease(&debezium(), "paused").await;
    assert_eq!(import.import(&stale, 10).await.unwrap().moved, 0);
    assert_eq!(stage.count("SELECT count(*) FROM outbox").await, 1);
    assert_eq!(import.import(&again, 10).await.unwrap().moved, 1);
}

/// Two processes that both try all the time; the lease goes back and forth between them.
pub async fn two_movers_move_every_row_once<F: ImportFixture>(stage: Stage<F>) {
    const ROWS: u32 = 120;
    stage.define(F::DIALECT.debezium).await;
    let rows: Vec<String> = (0..ROWS).map(|number| insert(number, "k", "{}")).collect();
    stage.commit(&rows.iter().map(String::as_str).collect::<Vec<_>>()).await;

    let mover = async |name: &'static str| {
        let database = stage.fixture.open().await;
        let import = database.prepare_import(debezium()).await.unwrap();
        let (lease_name, holder) = (debezium().lease_name(), Holder(name.into()));
        let mut held = None;
        let mut empty = 0;
        while empty < 3 {
            // What it held before is tried again as well, whether it is still its own or not.
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
    futures_util::future::join(mover("first"), mover("second")).await;
    // One of them may have ended while the other had the lease.
    stage.move_all(&debezium()).await;
    every_row_is_there_once(&stage, ROWS).await;
}

/// Cutting a mover off drops its connection at that point, as a crash would.
pub async fn a_mover_that_is_cut_off_anywhere_loses_and_doubles_nothing<F: ImportFixture>(stage: Stage<F>) {
    const ROWS: u32 = 150;
    stage.define(F::DIALECT.debezium).await;
    let rows: Vec<String> = (0..ROWS).map(|number| insert(number, "k", "{}")).collect();
    stage.commit(&rows.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let import = stage.prepare(debezium()).await;
    let lease = stage.lease(&debezium(), "mover").await;
    for step in 0..60_u64 {
        let patience = Duration::from_micros(100 + 150 * step);
        if let Ok(Err(error)) = tokio::time::timeout(patience, import.import(&lease, 3)).await {
            assert!(error.is_temporary(), "{error}");
        }
    }
    stage.database.release(&[lease]).await.unwrap();
    stage.move_all(&debezium()).await;
    every_row_is_there_once(&stage, ROWS).await;
}

/// Under a statement and under a commit alike; what became of the transaction is seen by looking at the rows.
pub async fn a_mover_whose_connections_are_killed_loses_and_doubles_nothing<F: ImportFixture>(stage: Stage<F>) {
    const ROWS: u32 = 200;
    const KILLS: usize = 8;
    stage.define(F::DIALECT.debezium).await;
    let rows: Vec<String> = (0..ROWS).map(|number| insert(number, "k", "{}")).collect();
    stage.commit(&rows.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let import = stage.prepare(debezium()).await;
    let lease = stage.lease(&debezium(), "mover").await;
    let killed = AtomicBool::new(false);
    let killing = async {
        for _ in 0..KILLS {
            stage.fixture.kill_connections().await;
        }
        killed.store(true, Ordering::SeqCst);
    };
    let moving = async {
        let mut empty = 0;
        // It outlives the kills, and has used every connection after them.
        while empty < 2 {
            match import.import(&lease, 2).await {
                Ok(step) if step.moved == 0 && killed.load(Ordering::SeqCst) => empty += 1,
                Ok(_) => empty = 0,
                Err(error) => assert!(error.is_temporary(), "{error}"),
            }
        }
    };
    futures_util::future::join(killing, moving).await;
    every_row_is_there_once(&stage, ROWS).await;
}

/// Rows that were taken are back when they cannot be enqueued.
pub async fn a_failing_enqueue_leaves_the_rows_where_they_are<F: ImportFixture>(stage: Stage<F>) {
    stage.define(F::DIALECT.debezium).await;
    stage.commit(&[&insert(1, "42", "{}")]).await;
    let import = stage.prepare(debezium()).await;
    let lease = stage.lease(&debezium(), "mover").await;
    stage.define("ALTER TABLE landfall_outbox RENAME TO elsewhere").await;
    import.import(&lease, 10).await.unwrap_err();
    assert_eq!(stage.count("SELECT count(*) FROM outbox").await, 1);
    stage.define("ALTER TABLE elsewhere RENAME TO landfall_outbox").await;
    assert_eq!(import.import(&lease, 10).await.unwrap().moved, 1);
    every_row_is_there_once(&stage, 0).await;
}

/// Rows `0..rows`, and in any case none twice and none left.
async fn every_row_is_there_once<F: ImportFixture>(stage: &Stage<F>, rows: u32) {
    assert_eq!(stage.count("SELECT count(*) FROM outbox").await, 0, "nothing is left");
    let messages = stage.messages().await;
    let ids: HashSet<String> = messages.iter().map(|message| message.id.to_string()).collect();
    assert_eq!(ids.len(), messages.len(), "none is there twice");
    assert!((0..rows).all(|number| ids.contains(&id(number))), "none is lost");
}
