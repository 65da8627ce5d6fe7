//! Opens and looks after the databases of `[[check_back.shard]]`.

use landfall::housekeeping::{Housekeeper, Policy};

use super::startup::Waiting;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::stores::{Database, database, shards};

/// Opens every shard, and migrates or checks its tables. Waits for servers that are down.
pub(super) async fn open(config: &Config, waiting: &Waiting) -> Result<Vec<Database>> {
    let mut opened = Vec::new();
    for shard in shards::configurations(config) {
        opened.push(waiting.wait_for("shard", async || open_one(&shard).await).await?);
    }
    Ok(opened)
}

async fn open_one(shard: &Config) -> Result<Database> {
    let database = database::open(shard).await.map_err(|error| match error {
        // A local file does not appear by waiting.
        Error::Outage(text) if !database::is_remote(shard) => Error::Failed(text),
        error => error,
    })?;
    if shard.database.auto_migrate {
        database.schema.migrate().await?;
    }
    database.schema.check().await?;
    Ok(database)
}

/// Returns a housekeeper for each database.
pub(super) fn housekeepers(home: &Database, shards: &[Database], policy: &Policy) -> Result<Vec<Housekeeper>> {
    let new = |database: &Database| {
        Ok(Housekeeper::new(database.housekeeping.clone(), database.leases.clone(), policy.clone())?)
    };
    std::iter::once(home).chain(shards).map(new).collect()
}
