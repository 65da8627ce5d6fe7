//! The harness of the import cases: a migrated database and shared steps.

use std::time::Duration;

use landfall_core::adapter::{Decision, Import, Imported, Lease, OutboxEntry, Settlement, Shard};
use landfall_core::{Database, Holder, ImportSource, Leases, Mapping, Message, OutboxQueue, Schema, TableName};
use tokio::sync::Mutex;

use super::ImportFixture;

/// Longer than any case runs.
pub(super) const LONG: Duration = Duration::from_secs(3600);

/// The database under test.
#[derive(Debug)]
pub struct Harness<F: ImportFixture> {
    pub(super) fixture: F,
    pub(super) database: F::Database,
    published: Mutex<Vec<Message>>,
}

impl<F: ImportFixture> Harness<F> {
    pub(super) async fn new(fixture: F) -> Self {
        let database = fixture.open().await;
        database.migrate().await.unwrap();
        Self { fixture, database, published: Mutex::default() }
    }

    /// Runs `statements` in one transaction and commits it.
    pub(super) async fn commit(&self, statements: &[&str]) {
        let mut transaction = self.database.begin().await.unwrap();
        for statement in statements {
            self.fixture.execute(&mut transaction, statement).await;
        }
        self.database.commit(transaction).await.unwrap();
    }

    /// Runs a DDL statement, which some databases commit implicitly.
    pub(super) async fn define(&self, statement: &str) {
        let mut transaction = self.database.begin().await.unwrap();
        self.fixture.execute(&mut transaction, statement).await;
        // After an implicit commit the transaction has already ended, so this may fail.
        let _ = self.database.commit(transaction).await;
    }

    pub(super) async fn count(&self, query: &str) -> i64 {
        let mut transaction = self.database.begin().await.unwrap();
        self.fixture.count(&mut transaction, query).await
    }

    pub(super) async fn prepare(&self, mapping: Mapping) -> Box<dyn Import> {
        self.database.prepare_import(mapping).await.unwrap()
    }

    /// Acquires the lease of `mapping`'s table, which must be free.
    pub(super) async fn lease(&self, mapping: &Mapping, holder: &str) -> Lease {
        let lease = self.database.acquire(&mapping.lease_name(), &Holder(holder.into()), LONG).await.unwrap();
        lease.expect("the lease is not free")
    }

    /// Imports all present rows and returns the totals.
    pub(super) async fn move_all(&self, mapping: &Mapping) -> Imported {
        let import = self.prepare(mapping.clone()).await;
        let lease = self.lease(mapping, "importer").await;
        let mut total = Imported::default();
        loop {
            let moved = import.import(&lease, 7).await.unwrap();
            (total.moved, total.refused) = (total.moved + moved.moved, total.refused + moved.refused);
            if moved.moved == 0 {
                self.database.release(&[lease]).await.unwrap();
                return total;
            }
        }
    }

    /// Reads all due entries as a relay does, settles them as published, and returns them in order.
    pub(super) async fn publish(&self) -> Vec<OutboxEntry> {
        let mut leases = Vec::new();
        for shard in 0..self.database.shards() {
            let name = Shard(shard).lease_name();
            leases.extend(self.database.acquire(&name, &Holder("relay".into()), LONG).await.unwrap());
        }
        let mut published = Vec::new();
        loop {
            let entries = self.database.next(&leases, 1000).await.unwrap();
            if entries.is_empty() {
                return published;
            }
            let settle =
                |entry: &OutboxEntry| Settlement { row: entry.row, shard: entry.shard, decision: Decision::Published };
            let settlements: Vec<_> = entries.iter().map(settle).collect();
            assert_eq!(self.database.settle(&leases, &settlements).await.unwrap().len(), entries.len());
            published.extend(entries);
        }
    }

    /// Returns every message imported so far, in the order in which a relay publishes them.
    pub(super) async fn messages(&self) -> Vec<Message> {
        let published = self.publish().await.into_iter().map(|entry| entry.message.unwrap());
        let mut all = self.published.lock().await;
        all.extend(published);
        all.clone()
    }

    /// Returns the payloads of one key's messages as text, in the order in which a relay publishes them.
    pub(super) async fn payloads_of(&self, key: &str) -> Vec<String> {
        let messages = self.messages().await;
        let of_key = messages.iter().filter(|message| message.key.as_ref().is_some_and(|known| known.as_str() == key));
        of_key.map(|message| String::from_utf8(message.payload.to_vec()).unwrap()).collect()
    }
}

/// Debezium's columns in the table `outbox`.
pub(super) fn debezium() -> Mapping {
    Mapping::debezium(TableName::new("outbox").unwrap()).unwrap()
}

/// `INSERT` of one row with Debezium's columns.
pub(super) fn insert(number: u32, key: &str, payload: &str) -> String {
    format!(
        "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
         VALUES ('{}', 'Order', '{key}', 'OrderPlaced', '{payload}')",
        id(number)
    )
}

pub(super) fn id(number: u32) -> String {
    // Scrambled, so that sorting by id does not give the right order by accident.
    format!("{:08x}-0000-4000-8000-{number:012x}", number.wrapping_mul(2_654_435_761))
}
