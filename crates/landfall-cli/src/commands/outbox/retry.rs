//! `landfall outbox retry`.

use clap::Args;
use landfall::{OutboxControl, OutboxFilter, OutboxState, OutboxView, RowId};
use serde::Serialize;

use crate::actor::actor;
use crate::error::{Error, Result};
use crate::output::Output;

/// Make messages that wait for their next attempt due at once.
///
/// Their attempts stay as they are: one that fails for the last time is parked as ever. Written to the audit table under
/// --actor.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall outbox retry 17 18
  landfall outbox retry --all-retrying --actor maria

A message that is parked is put back with `landfall dlq redrive`.")]
pub(super) struct Retry {
    /// Rows, as `landfall outbox list` shows them.
    #[arg(value_name = "ROW", required_unless_present = "all_retrying")]
    rows: Vec<RowId>,
    /// Every message that waits for its next attempt.
    #[arg(long, conflicts_with = "rows")]
    all_retrying: bool,
    /// Who does this, for the audit table [default: $USER]
    #[arg(long)]
    actor: Option<String>,
    /// One JSON object: retried and skipped, as lists of rows.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Default, Serialize)]
struct Retried {
    retried: Vec<RowId>,
    skipped: Vec<RowId>,
}

/// Rows that are made due in one transaction.
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
                // Those that are due already are on their way; nobody asked for them in particular.
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

    /// Nothing made due is "not so" for somebody who named rows, and fine for somebody who said all.
    fn report(&self, done: &Retried) -> Result<()> {
        let mut output = Output::new();
        if self.json {
            output.json(done)?;
        } else {
            let skipped = match done.skipped.len() {
                0 => String::new(),
                count => format!("; {count} did not wait for an attempt"),
            };
            output.line(&format!("{} due now{skipped}", done.retried.len()))?;
        }
        output.flush()?;
        if done.retried.is_empty() && !self.all_retrying {
            return Err(Error::not_so(
                "none of these rows waits for its next attempt; `landfall outbox show ROW` says where it is",
            ));
        }
        Ok(())
    }
}
