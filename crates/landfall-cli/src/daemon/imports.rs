//! Runs the importers of `[[import]]` next to the relay: one task per table.

use landfall::import::{Importer, Options};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::stores::Database;

/// Checks every mapping against its live table; fails at the first mismatch.
pub(super) async fn prepare(config: &Config, database: &Database) -> Result<Vec<Importer>> {
    let mut importers = Vec::with_capacity(config.import.len());
    for mapping in &config.import {
        let options = Options {
            batch: config.relay.batch,
            lease_ttl: config.relay.lease,
            poll_max: config.relay.poll_max,
            ..Options::default()
        };
        importers.push(Importer::new(&*database.import, database.leases.clone(), mapping.clone(), options).await?);
    }
    Ok(importers)
}

/// Runs until `stop`. If one importer fails permanently, all of them stop and the error is returned.
pub(super) async fn run(importers: Vec<Importer>, stop: CancellationToken) -> Result<()> {
    let mut tasks: JoinSet<_> = importers.into_iter().map(|importer| importer.run(stop.child_token())).collect();
    let mut result = Ok(());
    while let Some(ended) = tasks.join_next().await {
        let ended = match ended {
            Ok(ended) => ended.map_err(Error::from),
            Err(error) => Err(Error::failed(format!("an import task panicked: {error}"))),
        };
        if ended.is_err() && result.is_ok() {
            result = ended;
            stop.cancel();
        }
    }
    if result.is_ok() {
        stop.cancelled().await;
    }
    result
}
