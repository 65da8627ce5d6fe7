//! The databases of `[[check_back.shard]]`.

use std::sync::Arc;

use landfall::check_back::Shards;

use super::database::{self, Database};
use crate::config::{self, Config};
use crate::error::{Error, Result};

/// Returns the configuration of each shard, with its database in place of the daemon's own.
pub(crate) fn configurations(config: &Config) -> Vec<Config> {
    let of_shard = |shard: &config::Shard| {
        let mut one = config.clone();
        one.database.url = shard.url.clone();
        one.check_back.shards.clear();
        one
    };
    config.check_back.shards.iter().map(of_shard).collect()
}

/// Makes the half messages of `home` those of all shards. Each shard has its own tables, outbox and relay.
pub(crate) fn combine(config: &Config, home: &mut Database, shards: &[Database]) {
    if shards.is_empty() {
        return;
    }
    let mut all = Shards::from_parts(home.half.clone(), home.housekeeping.clone());
    for (shard, database) in config.check_back.shards.iter().zip(shards) {
        all = all.with(shard.topics.clone(), database.half.clone());
    }
    home.half = Arc::new(all);
}

/// Opens all shards and combines them with `home`; creates nothing. For commands.
pub(crate) async fn open_existing(config: &Config, home: &mut Database) -> Result<()> {
    let mut shards = Vec::new();
    for one in configurations(config) {
        let shard = database::open_existing(&one).await.map_err(|error| about(&one, error))?;
        shard.schema.check().await?;
        shards.push(shard);
    }
    combine(config, home, &shards);
    Ok(())
}

/// Names the shard of an error.
fn about(config: &Config, error: Error) -> Error {
    let named = |text: String| format!("check_back.shard {}: {text}", config.database.url);
    match error {
        Error::Failed(text) => Error::Failed(named(text)),
        Error::Outage(text) => Error::Outage(named(text)),
        error => error,
    }
}
