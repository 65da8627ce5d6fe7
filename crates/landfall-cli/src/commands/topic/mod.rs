//! `landfall topic`: the topics of the broker, their messages and their consumer groups.

mod audit;
mod configure;
mod confirm;
mod create;
mod delete;
mod forget;
mod grow;
mod list;
mod publish;
mod seek;
mod settings;
mod show;
mod start;
mod tail;
mod verify;

use clap::{Args, Subcommand};

use super::sources::Sources;
use crate::error::Result;

/// Create, inspect and change topics, read and publish messages, move consumer groups.
///
/// show, configure, grow, verify, seek and forget need the embedded log (log:PATH); the others work with any broker
/// that supports them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall topic create orders --partitions 12
  landfall topic tail orders --follow
  landfall topic show orders
  landfall topic seek orders --group billing --to beginning")]
pub(crate) struct Topic {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    sources: Sources,
}

#[derive(Debug, Subcommand)]
enum Action {
    Create(create::Create),
    List(list::List),
    Show(show::Show),
    Configure(configure::Configure),
    Grow(grow::Grow),
    Delete(delete::Delete),
    Tail(tail::Tail),
    Publish(publish::Publish),
    Verify(verify::Verify),
    Seek(seek::Seek),
    Forget(forget::Forget),
}

impl Topic {
    pub(crate) async fn run(self) -> Result<()> {
        let config = self.sources.load()?;
        match self.action {
            Action::Create(create) => create.run(&config).await,
            Action::List(list) => list.run(&config).await,
            Action::Show(show) => show.run(&config).await,
            Action::Configure(configure) => configure.run(&config).await,
            Action::Grow(grow) => grow.run(&config).await,
            Action::Delete(delete) => delete.run(&config).await,
            Action::Tail(tail) => tail.run(&config).await,
            Action::Publish(publish) => publish.run(&config).await,
            Action::Verify(verify) => verify.run(&config).await,
            Action::Seek(seek) => seek.run(&config).await,
            Action::Forget(forget) => forget.run(&config).await,
        }
    }
}
