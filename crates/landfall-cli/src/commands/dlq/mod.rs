//! `landfall dlq`: messages that need a person.

mod filter;
mod list;
mod redrive;
mod show;

use clap::{Args, Subcommand};

use super::sources::Sources;
use crate::error::Result;

/// Messages that need a person: look at them, and put them back.
///
/// A message that failed for the last time is parked here, and later messages of its topic and key wait behind it; one that
/// is delayed is tried again by itself, and nobody has to do anything. A redrive hands it back (to its consumer, or to the relay if it was never published) and lets the key go on in order.
#[derive(Debug, Args)]
pub(crate) struct Dlq {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    sources: Sources,
}

#[derive(Debug, Subcommand)]
enum Action {
    List(list::List),
    Show(show::Show),
    Redrive(redrive::Redrive),
}

impl Dlq {
    pub(crate) async fn run(self) -> Result<()> {
        match self.action {
            Action::List(list) => list.run(self.sources.open_database().await?.dead_letters.as_ref()).await,
            Action::Show(show) => show.run(self.sources.open_database().await?.dead_letters.as_ref()).await,
            Action::Redrive(redrive) => {
                redrive.check()?;
                let plan = self.sources.load()?.retention_plan();
                redrive.run(self.sources.open_database().await?.dead_letters.as_ref(), &plan).await
            }
        }
    }
}
