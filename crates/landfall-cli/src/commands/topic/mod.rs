//! `landfall topic`: what stands in the broker.

mod configure;
mod confirm;
mod create;
mod delete;
mod forget;
mod grow;
mod list;
mod place;
mod publish;
mod seek;
mod settings;
mod show;
mod tail;
mod verify;

use clap::{Args, Subcommand};

use super::sources::Sources;
use crate::error::Result;

/// What stands in the broker: create and change topics, list them, read them, write to them, move the groups that
/// read them.
#[derive(Debug, Args)]
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
