//! `landfall outbox park`.

use clap::Args;
use landfall::{OutboxControl, RowId};
use serde::Serialize;

use crate::actor::actor;
use crate::error::{Error, Result};
use crate::output::Output;

/// Give up on messages that have failed: they become dead letters now, and their keys wait behind them.
///
/// Only a message that failed at least once can be parked; one that never did is the relay's, which may be sending it
/// this very moment. `landfall dlq redrive` puts it back. Written to the audit table under --actor.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall outbox park 17 --reason \"the topic is gone, ticket 4711\"
  landfall outbox park 17 18 --reason \"poison\" --actor maria --json")]
pub(super) struct Park {
    /// Rows, as `landfall outbox list --state retrying` shows them.
    #[arg(value_name = "ROW", required = true)]
    rows: Vec<RowId>,
    /// Why, for whoever finds the dead letter: stored as its error, with the code PARKED_BY_HAND.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Who does this, for the audit table [default: $USER]
    #[arg(long)]
    actor: Option<String>,
    /// One JSON object: parked and skipped, as lists of rows.
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
            return Err(Error::wrong_use("--reason is empty; say why, for whoever finds the dead letter"));
        }
        let parked = control.park(&self.rows, reason, &actor(self.actor.clone())).await?;
        let done = Parked { skipped: super::skipped(&self.rows, &parked), parked };
        let mut output = Output::new();
        if self.json {
            output.json(&done)?;
        } else {
            let skipped = match done.skipped.len() {
                0 => String::new(),
                count => format!("; {count} had not failed or are not there"),
            };
            output.line(&format!("{} parked{skipped}", done.parked.len()))?;
        }
        output.flush()?;
        if done.parked.is_empty() {
            return Err(Error::not_so(
                "nothing was parked: only a message that failed at least once can be parked by hand",
            ));
        }
        Ok(())
    }
}
