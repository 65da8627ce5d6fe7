//! Audit rows of changes that topic commands make.

use std::io::Write;
use std::sync::Arc;

use clap::Args;
use landfall::{OutboxControl, Result as PortResult};

use crate::actor::actor;
use crate::config::Config;
use crate::error::Result;
use crate::stores::database;

/// The flag of every command whose change is recorded.
#[derive(Debug, Args)]
pub(super) struct Actor {
    /// Name for the audit table [default: $USER]
    #[arg(long)]
    actor: Option<String>,
}

/// The audit table of the configured database, if it has one.
pub(super) struct TopicAudit {
    table: Option<Arc<dyn OutboxControl>>,
    actor: String,
}

impl Actor {
    /// Opens the audit table. A broker that is used without a database has none; the command says so on stderr. A
    /// database that cannot be reached is an error, so that no change goes unrecorded.
    pub(super) async fn open_audit(self, config: &Config) -> Result<TopicAudit> {
        let opened = match database::open_existing(config).await {
            Ok(database) if database.schema.state().await?.found > 0 => Some(database.control),
            Ok(_) => None,
            Err(_) if !database::is_remote(config) => None,
            Err(error) => return Err(error),
        };
        if opened.is_none() {
            let text = "the change is not recorded, because the configured database has no tables of Landfall";
            // A closed stderr must not stop the command.
            let _ = writeln!(std::io::stderr(), "warning: {text}");
        }
        Ok(TopicAudit { table: opened, actor: actor(self.actor) })
    }
}

impl TopicAudit {
    /// Records the action, then makes the change. If the change fails, a second row says so.
    pub(super) async fn record<T>(
        &self,
        action: &str,
        detail: &str,
        change: impl AsyncFnOnce() -> PortResult<T>,
    ) -> PortResult<T> {
        let Some(table) = &self.table else { return change().await };
        table.record_action(&self.actor, action, detail).await?;
        let changed = change().await;
        if let Err(error) = &changed {
            table.record_action(&self.actor, &format!("{action}-failed"), &format!("{detail}: {error}")).await?;
        }
        changed
    }
}
