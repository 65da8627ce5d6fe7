//! `landfall alerts`: alerts, their notices and their mutes.

mod list;
mod mute;
mod notices;
mod test;

use clap::{Args, Subcommand};

use super::sources::Sources;
use crate::error::Result;

/// List and mute alerts, read what was sent, and test a channel.
///
/// `landfall serve` evaluates the rules and sends the notices. The rules are `[[alert]]` and the
/// channels `[[alert_channel]]` of the configuration.
#[derive(Debug, Args)]
#[command(after_help = "Examples, where ID is the id from the list:
  landfall alerts list --state firing
  landfall alerts notices --state given_up
  landfall alerts test ops
  landfall alerts mute ID --for 2h --reason 'the bank is down, INC-42'
  landfall alerts mute --rule consumer-lag --for 30m")]
pub(crate) struct Alerts {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    sources: Sources,
}

#[derive(Debug, Subcommand)]
enum Action {
    List(list::List),
    Notices(notices::Notices),
    Mute(mute::Mute),
    Test(test::Test),
}

impl Alerts {
    pub(crate) async fn run(self) -> Result<()> {
        match self.action {
            Action::List(list) => list.run(&*self.sources.open_database().await?.alerts).await,
            Action::Notices(notices) => notices.run(&*self.sources.open_database().await?.alerts).await,
            Action::Mute(mute) => {
                let rules = self.sources.load()?.alerts.effective_rules();
                mute.run(&*self.sources.open_database().await?.alerts, &rules).await
            }
            Action::Test(test) => test.run(&self.sources.load()?.alerts).await,
        }
    }
}
