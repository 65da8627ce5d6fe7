//! A business database whose barrier is asked. Connects when it is first asked, so the daemon starts while it is down.

use std::time::Duration;

use async_trait::async_trait;
use landfall::{Barriers, Error, ErrorKind, HalfVerdict, MessageId, Result, Timestamp};
use tokio::sync::OnceCell;

use crate::config::{Config, Database};
use crate::stores::database;

pub(super) struct BusinessDatabase {
    /// The configuration with this database in place of the daemon's own.
    config: Config,
    open: OnceCell<database::Database>,
}

impl BusinessDatabase {
    /// The database configured as `name`.
    pub(super) fn new(config: &Config, name: &str) -> Self {
        let mut config = config.clone();
        if let Some(url) = config.check_back.databases.get(name) {
            config.check_back.shards.clear();
            config.database = Database { url: url.clone(), max_connections: 2, ..config.database };
        }
        Self { config, open: OnceCell::new() }
    }

    async fn open(&self) -> Result<&dyn Barriers> {
        let open = async || database::open_existing(&self.config).await;
        let database = self.open.get_or_try_init(open).await;
        let database = database.map_err(|error| Error::new(ErrorKind::Unavailable, error.to_string()))?;
        Ok(&*database.barriers)
    }
}

#[async_trait]
impl Barriers for BusinessDatabase {
    async fn ask_barrier(&self, id: MessageId, prepared_at: Timestamp) -> Result<Option<HalfVerdict>> {
        self.open().await?.ask_barrier(id, prepared_at).await
    }

    async fn longest_transaction(&self) -> Result<Option<Duration>> {
        self.open().await?.longest_transaction().await
    }
}
