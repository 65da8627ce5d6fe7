//! `landfall migrate`: the tables.

use clap::Args;

use super::sources::Sources;
use crate::error::Result;
use crate::output::Output;
use crate::stores::database;

/// Bring the database's tables to the version of this build.
///
/// Runs in one transaction and may run any number of times, by several at once: who comes second changes nothing.
/// Tables that are newer than this build are left alone.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall migrate
  landfall migrate --database-url postgres://shop@db/shop
  landfall migrate --print --database-url postgres: | psql shop")]
pub(crate) struct Migrate {
    /// Print the statements that make the tables from nothing, and change nothing; needs no server.
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
        }
        output.flush()
    }
}
