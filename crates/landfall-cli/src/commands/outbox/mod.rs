//! `landfall outbox`: inspects and controls messages before they are published.

mod list;
mod park;
mod purge;
mod retry;
mod show;
mod stats;

use clap::{Args, Subcommand};
use landfall::RowId;

use super::sources::Sources;
use crate::error::Result;

/// Inspect the outbox, retry or park failed messages, purge sent ones.
///
/// Every message is in one state. pending: the relay publishes it next. waiting: it waits behind a failed message of
/// its key. retrying: it failed and has a next attempt. parked: it failed for the last time, and `landfall dlq
/// redrive` hands it back. sent: it is published, and kept for retention.sent.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall outbox stats
  landfall outbox list --state retrying
  landfall outbox show 0197b1c2-8f3e-7c11-9d2b-6a5f0c3e9d10
  landfall outbox retry --all-retrying
  landfall outbox list --database-url postgres://shop@db/shop --json")]
pub(crate) struct Outbox {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    sources: Sources,
}

#[derive(Debug, Subcommand)]
enum Action {
    Stats(stats::Stats),
    List(list::List),
    Show(show::Show),
    Retry(retry::Retry),
    Park(park::Park),
    Purge(purge::Purge),
}

impl Outbox {
    pub(crate) async fn run(self) -> Result<()> {
        let database = self.sources.open_database().await?;
        match self.action {
            Action::Stats(stats) => stats.run(&*database.view).await,
            Action::List(list) => list.run(&*database.view).await,
            Action::Show(show) => show.run(&*database.view, &*database.dead_letters).await,
            Action::Retry(retry) => retry.run(&*database.view, &*database.control).await,
            Action::Park(park) => park.run(&*database.control).await,
            Action::Purge(purge) => purge.run(&*database.housekeeping, &*database.control).await,
        }
    }
}

/// Returns the rows of `requested` that are not in `changed`, each once.
fn skipped(requested: &[RowId], changed: &[RowId]) -> Vec<RowId> {
    let mut skipped: Vec<RowId> = requested.iter().copied().filter(|row| !changed.contains(row)).collect();
    skipped.sort_unstable();
    skipped.dedup();
    skipped
}
