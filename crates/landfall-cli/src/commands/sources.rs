//! The flags of every command that uses a database or a broker.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use crate::config::{Config, Environment, Flag};
use crate::error::Result;
use crate::stores::{Database, database};

#[derive(Debug, Args)]
#[command(next_help_heading = "Connections")]
pub(crate) struct Sources {
    /// Configuration file; default: ./landfall.toml, if it exists.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Database: sqlite:PATH, postgres://user@host/database or mysql://user@host/database; or env:NAME or file:PATH to
    /// read the URL from there.
    #[arg(long, global = true, value_name = "URL")]
    database_url: Option<String>,
    /// Broker: log:PATH (the embedded log), kafka://HOST, nats://HOST, amqp://HOST, redis://HOST or sqs://REGION; or
    /// env:NAME or file:PATH to read the URL from there.
    #[arg(long, global = true, value_name = "URL")]
    broker_url: Option<String>,
}

impl Sources {
    pub(crate) fn load(&self) -> Result<Config> {
        self.load_with([])
    }

    /// Loads the configuration with the command's own flags as the top layer.
    pub(crate) fn load_with(&self, flags: impl IntoIterator<Item = Flag>) -> Result<Config> {
        let url = |flag, path, url: &Option<String>| url.as_ref().map(|url| Flag::new(flag, path, url));
        let mut all = Vec::new();
        all.extend(url("--database-url", "database.url", &self.database_url));
        all.extend(url("--broker-url", "broker.url", &self.broker_url));
        all.extend(flags);
        let environment = Environment::from_process();
        let config = Config::load(self.config.clone(), &environment, &all)?;
        for warning in environment.warnings() {
            // A closed stderr must not stop the command.
            let _ = writeln!(std::io::stderr(), "warning: {warning}");
        }
        Ok(config)
    }

    /// Opens the configured database and checks that its tables have this build's version.
    pub(crate) async fn open_database(&self) -> Result<Database> {
        let database = database::open_existing(&self.load()?).await?;
        database.schema.check().await?;
        Ok(database)
    }
}
