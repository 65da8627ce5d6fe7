//! `landfall dlq`: dead letters.

mod discard;
mod edit;
mod filter;
mod list;
mod redrive;
mod retrying;
mod show;

use clap::{Args, Subcommand};

use super::sources::Sources;
use crate::error::Result;

/// List, inspect, redrive, edit and discard dead letters: messages that failed for the last time.
///
/// A parked message needs an operator, and later messages of its topic and key wait behind it. A delayed message is
/// retried automatically. A redrive hands a parked message back to its consumer, or to the relay if it was never
/// published; the waiting messages follow in order.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall dlq list --status parked
  landfall dlq retrying
  landfall dlq show 17
  landfall dlq redrive --topic orders --code HANDLER_ERROR")]
pub(crate) struct Dlq {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    sources: Sources,
}

#[derive(Debug, Subcommand)]
enum Action {
    List(list::List),
    Retrying(retrying::Retrying),
    Show(show::Show),
    Redrive(redrive::Redrive),
    Edit(edit::Edit),
    Discard(discard::Discard),
}

impl Dlq {
    pub(crate) async fn run(self) -> Result<()> {
        match self.action {
            Action::List(list) => list.run(self.sources.open_database().await?.dead_letters.as_ref()).await,
            Action::Retrying(retrying) => retrying.run(self.sources.open_database().await?.deliveries.as_ref()).await,
            Action::Show(show) => show.run(self.sources.open_database().await?.dead_letters.as_ref()).await,
            Action::Edit(edit) => edit.run(self.sources.open_database().await?.dead_letters.as_ref()).await,
            Action::Discard(discard) => {
                discard.check()?;
                discard.run(self.sources.open_database().await?.dead_letters.as_ref()).await
            }
            Action::Redrive(redrive) => {
                redrive.check()?;
                let plan = self.sources.load()?.retention_plan();
                redrive.run(self.sources.open_database().await?.dead_letters.as_ref(), &plan).await
            }
        }
    }
}
