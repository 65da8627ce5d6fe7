//! `landfall outbox retry`.

use clap::Args;
use landfall::{OutboxControl, OutboxFilter, OutboxState, OutboxView, RowId};
use serde::Serialize;

use crate::actor::actor;
use crate::error::{Error, Result};
use crate::output::Output;

/// Retry failed messages now instead of at their next attempt.
///
/// The attempt count stays: a message that fails for the last time is parked as usual. Recorded in the audit table
/// under
/// --actor.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall outbox retry 17 18
  landfall outbox retry --all-retrying --actor maria

To retry a parked message, use `landfall dlq redrive`.")]
pub(super) struct Retry {
    /// Rows to retry, from `landfall outbox list --state retrying`.
    #[arg(value_name = "ROW", required_unless_present = "all_retrying")]
    rows: Vec<RowId>,
    /// Retry every message that waits for its next attempt.
    #[arg(long, conflicts_with = "rows")]
    all_retrying: bool,
    /// Name for the audit table [default: $USER]
    #[arg(long)]
    actor: Option<String>,
    /// Print one JSON object with the lists of rows retried and skipped.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Default, Serialize)]
struct Retried {
    retried: Vec<RowId>,
    skipped: Vec<RowId>,
}

/// Rows made due in one transaction.
const PAGE: usize = 1000;

impl Retry {
    pub(super) async fn run(self, view: &dyn OutboxView, control: &dyn OutboxControl) -> Result<()> {
        let actor = actor(self.actor.clone());
        let mut done = Retried::default();
        if self.all_retrying {
            let mut filter = OutboxFilter { state: Some(OutboxState::Retrying), ..OutboxFilter::default() };
            loop {
                let page = view.list(&filter, PAGE).await?;
                let Some(last) = page.last() else { break };
                filter.after = Some(last.row);
                let rows: Vec<RowId> = page.iter().map(|row| row.row).collect();
                // Rows that are already due count neither as retried nor as skipped.
                done.retried.extend(control.retry(&rows, &actor).await?);
            }
        } else {
            for rows in self.rows.chunks(PAGE) {
                done.retried.extend(control.retry(rows, &actor).await?);
            }
            done.skipped = super::skipped(&self.rows, &done.retried);
        }
        self.report(&done)
    }

    /// Prints the result. Retrying nothing is an error for named rows, and fine with `--all-retrying`.
    fn report(&self, done: &Retried) -> Result<()> {
        let mut output = Output::new();
        if self.json {
            output.json(done)?;
        } else {
            let skipped = match done.skipped.len() {
                0 => String::new(),
                count => format!("; {count} had no attempt scheduled"),
            };
            output.line(&format!("{} due now{skipped}", done.retried.len()))?;
        }
        output.flush()?;
        if done.retried.is_empty() && !self.all_retrying {
            return Err(Error::failed(
                "none of these rows waits for its next attempt; `landfall outbox show ROW` shows its state",
            ));
        }
        Ok(())
    }
}
