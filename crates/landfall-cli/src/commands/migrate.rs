//! `landfall migrate`: creates and upgrades the tables.

use clap::Args;

use super::sources::Sources;
use crate::error::Result;
use crate::output::Output;
use crate::stores::{database, shards};

/// Create or upgrade the tables to the version of this build.
///
/// Runs in one transaction. Safe to run repeatedly and concurrently: later runs change nothing. Refuses tables that are
/// newer than this build and leaves them unchanged.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall migrate
  landfall migrate --database-url postgres://shop@db/shop
  landfall migrate --print --database-url postgres: | psql shop")]
pub(crate) struct Migrate {
    /// Print the DDL of all tables instead of running it; needs no server.
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    sources: Sources,
}

impl Migrate {
    pub(crate) async fn run(self) -> Result<()> {
        let config = self.sources.load()?;
        let mut output = Output::new();
        if self.print {
            output.line(database::ddl(&config)?.trim_end())?;
        } else {
            let database = database::open(&config).await?;
            let changed = database.schema.migrate().await?;
            let version = database.schema.state().await?.found;
            let what = if changed { "are now" } else { "were already" };
            output.line(&format!("The tables of {} {what} at version {version}.", config.database.url))?;
            for shard in shards::configurations(&config) {
                let database = database::open(&shard).await?;
                let changed = database.schema.migrate().await?;
                let what = if changed { "are now" } else { "were already" };
                output.line(&format!("The tables of {} {what} at version {version}.", shard.database.url))?;
            }
        }
        output.flush()
    }
}
