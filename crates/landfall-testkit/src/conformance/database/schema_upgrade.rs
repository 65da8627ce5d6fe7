//! Upgrades of the tables in place, with rows in every state.

use landfall_core::adapter::Decision;
use landfall_core::{Database, DeadLetterFilter, DeadLetters, OutboxQueue, OutboxView, Schema};

use super::harness::{LONG, lease_all, settlement};
use super::{DatabaseFixture, Harness};

/// The statements of schema version 1: the printed ones up to where its number is recorded, without their transaction.
fn version_1(ddl: &str) -> String {
    let end = ["WHERE version = 1;\n", "schema (version) VALUES (1);\n"];
    let end = end.iter().find_map(|end| Some(ddl.find(end)? + end.len())).expect("version 1 is recorded");
    ddl[..end].lines().filter(|line| !matches!(*line, "BEGIN;" | "BEGIN IMMEDIATE;")).collect::<Vec<_>>().join("\n")
}

async fn run<F: DatabaseFixture>(fixture: &F, database: &F::Database, script: &str) {
    let mut transaction = database.begin().await.unwrap();
    fixture.execute_text(&mut transaction, script).await.unwrap();
    database.commit(transaction).await.unwrap();
}

/// Publishes everything that is due and returns the payloads.
async fn publish_everything<D: OutboxQueue>(database: &D, leases: &[landfall_core::adapter::Lease]) -> Vec<String> {
    let mut payloads = Vec::new();
    loop {
        let due = database.next(leases, 100).await.unwrap();
        if due.is_empty() {
            return payloads;
        }
        let text = |entry: &landfall_core::adapter::OutboxEntry| {
            String::from_utf8(entry.message.as_ref().unwrap().payload.to_vec()).unwrap()
        };
        payloads.extend(due.iter().map(text));
        let published: Vec<_> = due.iter().map(|entry| settlement(entry, Decision::Published)).collect();
        assert_eq!(database.settle(leases, &published).await.unwrap().len(), due.len());
    }
}

pub async fn version_1_is_upgraded_with_its_rows<F: DatabaseFixture>(_harness: Harness<F>) {
    let Some(fixture) = F::create().await else { return };
    let database = fixture.open().await;
    let mut transaction = database.begin().await.unwrap();
    fixture.execute_text(&mut transaction, &version_1(&database.ddl())).await.unwrap();
    // DDL has ended the transaction on MySQL, so that the commit fails there.
    let _ = database.commit(transaction).await;
    run(&fixture, &database, F::VERSION_1_ROWS).await;
    assert_eq!(database.state().await.unwrap().found, 1);
    assert!(database.migrate().await.unwrap());
    database.check().await.unwrap();

    let leases = lease_all(&database, "new", LONG).await;
    assert_eq!(leases.len(), usize::from(database.shards()), "a lease of version 1 is not taken over");
    let text = "INSERT INTO landfall_outbox (topic, {key}, payload_text) VALUES ('orders', 'b', 'b3')";
    run(&fixture, &database, text).await;
    let mut published = publish_everything(&database, &leases).await;
    let of_b: Vec<_> = published.iter().filter(|payload| payload.starts_with('b')).cloned().collect();
    assert_eq!(of_b, ["b1", "b2", "b3"]);
    published.sort();
    assert_eq!(published, ["a1", "b1", "b2", "b3"]);

    let redriven = database.redrive(&DeadLetterFilter::default(), "test").await.unwrap();
    assert_eq!(redriven.redriven.len(), 1);
    assert_eq!(publish_everything(&database, &leases).await, ["c1", "c2"]);
    let stats = database.stats().await.unwrap();
    assert_eq!((stats.pending, stats.retrying, stats.parked, stats.published), (0, 0, 0, 6));
}
