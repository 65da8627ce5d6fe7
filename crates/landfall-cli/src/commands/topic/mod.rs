//! `landfall topic`: what stands in the broker.

mod confirm;
mod list;
mod publish;
mod tail;
mod verify;

use clap::{Args, Subcommand};

use super::sources::Sources;
use crate::error::Result;

/// What stands in the broker: list topics, read them, write to them.
#[derive(Debug, Args)]
pub(crate) struct Topic {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    sources: Sources,
}

#[derive(Debug, Subcommand)]
enum Action {
    List(list::List),
    Tail(tail::Tail),
    Publish(publish::Publish),
    Verify(verify::Verify),
}

impl Topic {
    pub(crate) async fn run(self) -> Result<()> {
        let config = self.sources.load()?;
        match self.action {
            Action::List(list) => list.run(&config).await,
            Action::Tail(tail) => tail.run(&config).await,
            Action::Publish(publish) => publish.run(&config).await,
            Action::Verify(verify) => verify.run(&config).await,
        }
    }
}
