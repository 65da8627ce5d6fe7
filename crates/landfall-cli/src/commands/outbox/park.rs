//! `landfall outbox park`.

use clap::Args;
use landfall::{OutboxControl, RowId};
use serde::Serialize;

use crate::actor::actor;
use crate::error::{Error, Result};
use crate::output::Output;

/// Park failed messages now: they become dead letters, and their keys wait behind them.
///
/// Only a message that failed at least once can be parked; the relay may be publishing any other at this moment.
/// `landfall dlq redrive` hands it back. Recorded in the audit table under --actor.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall outbox park 17 --reason \"the topic is gone, ticket 4711\"
  landfall outbox park 17 18 --reason \"poison\" --actor maria --json")]
pub(super) struct Park {
    /// Rows to park, from `landfall outbox list --state retrying`.
    #[arg(value_name = "ROW", required = true)]
    rows: Vec<RowId>,
    /// Reason, stored as the error of the dead letter with the code PARKED_BY_HAND.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Name for the audit table [default: $USER]
    #[arg(long)]
    actor: Option<String>,
    /// Print one JSON object with the lists of rows parked and skipped.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Parked {
    parked: Vec<RowId>,
    skipped: Vec<RowId>,
}

impl Park {
    pub(super) async fn run(self, control: &dyn OutboxControl) -> Result<()> {
        let reason = self.reason.trim();
        if reason.is_empty() {
            return Err(Error::usage("--reason is empty; give a reason to store with the dead letter"));
        }
        let parked = control.park(&self.rows, reason, &actor(self.actor.clone())).await?;
        let done = Parked { skipped: super::skipped(&self.rows, &parked), parked };
        let mut output = Output::new();
        if self.json {
            output.json(&done)?;
        } else {
            let skipped = match done.skipped.len() {
                0 => String::new(),
                count => format!("; {count} have not failed or do not exist"),
            };
            output.line(&format!("{} parked{skipped}", done.parked.len()))?;
        }
        output.flush()?;
        if done.parked.is_empty() {
            return Err(Error::failed(
                "nothing was parked: only a message that failed at least once can be parked by hand",
            ));
        }
        Ok(())
    }
}
