//! The flags that every command takes which touches a database or a broker.

use std::path::PathBuf;

use clap::Args;

use crate::config::{Config, Environment, Flag};
use crate::error::Result;
use crate::stores::{Database, database};

#[derive(Debug, Args)]
#[command(next_help_heading = "Where")]
pub(crate) struct Sources {
    /// The configuration file; without it ./landfall.toml, if there is one.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The database: sqlite:PATH, postgres://user@host/database or mysql://user@host/database, or env:NAME or file:PATH
    /// that holds it.
    #[arg(long, global = true, value_name = "URL")]
    database_url: Option<String>,
    /// The broker: log:PATH for the embedded log, kafka://HOST, nats://HOST, amqp://HOST, redis://HOST or sqs://REGION, or
    /// env:NAME or file:PATH that holds it.
    #[arg(long, global = true, value_name = "URL")]
    broker_url: Option<String>,
}

impl Sources {
    pub(crate) fn load(&self) -> Result<Config> {
        self.load_with([])
    }

    /// With flags of the verb's own over everything else.
    pub(crate) fn load_with(&self, flags: impl IntoIterator<Item = Flag>) -> Result<Config> {
        let url = |flag, path, url: &Option<String>| url.as_ref().map(|url| Flag::new(flag, path, url));
        let mut all = Vec::new();
        all.extend(url("--database-url", "database.url", &self.database_url));
        all.extend(url("--broker-url", "broker.url", &self.broker_url));
        all.extend(flags);
        Config::load(self.config.clone(), &Environment::of_this_process(), &all)
    }

    /// The configured database, with tables of this build's version in it.
    pub(crate) async fn open_database(&self) -> Result<Database> {
        let database = database::open_existing(&self.load()?).await?;
        database.schema.check().await?;
        Ok(database)
    }
}
