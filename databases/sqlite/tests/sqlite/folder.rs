//! A folder for each test, with a database in it.

use std::path::PathBuf;
use std::time::Duration;

use landfall_core::adapter::{Lease, Shard};
use landfall_core::{Holder, Key, Leases, Message, Schema, TopicName};
use landfall_sqlite::{Options, Sqlite};
use tempfile::TempDir;

/// How long a test waits for something that should happen at once.
pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) struct TestFolder(TempDir);

impl TestFolder {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path("landfall.db").display())
    }

    /// Opens another instance, which stands for another process.
    pub(crate) async fn open(&self) -> Sqlite {
        Sqlite::open(&self.url(), Options::default()).await.unwrap()
    }

    pub(crate) async fn migrated(&self) -> Sqlite {
        let database = self.open().await;
        database.migrate().await.unwrap();
        database
    }
}

pub(crate) async fn lease(database: &Sqlite) -> Vec<Lease> {
    let lease = database.acquire(&Shard(0).lease_name(), &Holder("relay".into()), SOON).await.unwrap();
    vec![lease.expect("the lease is free")]
}

pub(crate) fn message(key: &str, sequence: i64) -> Message {
    Message::new(TopicName::new("orders").unwrap(), "{}").with_key(Key::new(key).unwrap()).with_sequence(sequence)
}
