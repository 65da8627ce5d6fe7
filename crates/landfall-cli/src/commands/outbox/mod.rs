//! `landfall outbox`: what waits to be published, and what a person can do about it.

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

/// What waits to be published: look at it, hurry it, give up on it.
///
/// Every message of the outbox is in one state. pending: nothing stands before it. waiting: its key waits behind a
/// message that failed. retrying: it failed and is tried again at its next attempt. parked: it failed for the last time,
/// and `landfall dlq redrive` puts it back. sent: published, and kept as long as retention.sent says.
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
            Action::Purge(purge) => purge.run(&*database.housekeeping).await,
        }
    }
}

/// Those of `asked` that are not among `changed`, each once.
fn skipped(asked: &[RowId], changed: &[RowId]) -> Vec<RowId> {
    let mut skipped: Vec<RowId> = asked.iter().copied().filter(|row| !changed.contains(row)).collect();
    skipped.sort_unstable();
    skipped.dedup();
    skipped
}
