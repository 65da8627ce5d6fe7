//! `landfall dlq`: dead letters.

mod archive;
mod audit;
mod discard;
mod edit;
mod export;
mod filter;
mod groups;
mod ignore;
mod job;
mod keys;
mod list;
mod redrive;
mod redrives;
mod rehearse;
mod retrying;
mod show;

use clap::{Args, Subcommand};
use landfall::{KeyRuleKind, RedriveControl};

use super::sources::Sources;
use crate::error::Result;

/// Find, inspect, redrive, ignore, edit and discard dead letters: messages that failed for the last time.
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
    Groups(groups::Groups),
    Group(groups::Group),
    History(audit::History),
    Redrive(redrive::Redrive),
    Rehearse(rehearse::Rehearse),
    Redrives(redrives::List),
    /// Pause a redrive job.
    Pause(redrives::Control),
    /// Resume a paused redrive job.
    Resume(redrives::Control),
    /// Stop a redrive job for good. What it has not handed back stays parked.
    Stop(redrives::Control),
    Ignore(ignore::Ignore),
    Release(ignore::Release),
    #[command(after_help = "Example:
  landfall dlq block order-7 --topic orders --for 7d --reason 'see INC-42'")]
    Block(keys::SetRule),
    Allow(keys::SetRule),
    Unblock(keys::Unblock),
    Blocked(keys::Blocked),
    Audit(audit::Audit),
    Edit(edit::Edit),
    Discard(discard::Discard),
    Export(export::Export),
    Archive(archive::Archive),
    Archives(archive::Archives),
    Restore(archive::Restore),
}

impl Dlq {
    pub(crate) async fn run(self) -> Result<()> {
        match self.action {
            Action::List(list) => list.run(self.sources.open_database().await?.dead_letters.as_ref()).await,
            Action::Retrying(retrying) => retrying.run(self.sources.open_database().await?.deliveries.as_ref()).await,
            Action::Show(show) => show.run(self.sources.open_database().await?.dead_letters.as_ref()).await,
            Action::Groups(groups) => groups.run(self.sources.open_database().await?.dead_letters.as_ref()).await,
            Action::Group(group) => group.run(self.sources.open_database().await?.letter_groups.as_ref()).await,
            Action::History(history) => history.run(self.sources.open_database().await?.audit.as_ref()).await,
            Action::Audit(audit) => audit.run(self.sources.open_database().await?.audit.as_ref()).await,
            Action::Block(rule) => {
                rule.run(self.sources.open_database().await?.key_rules.as_ref(), KeyRuleKind::Blocked).await
            }
            Action::Allow(rule) => {
                rule.run(self.sources.open_database().await?.key_rules.as_ref(), KeyRuleKind::Allowed).await
            }
            Action::Unblock(unblock) => unblock.run(self.sources.open_database().await?.key_rules.as_ref()).await,
            Action::Blocked(blocked) => blocked.run(self.sources.open_database().await?.key_rules.as_ref()).await,
            Action::Ignore(ignore) => ignore.run(self.sources.open_database().await?.dead_letters.as_ref()).await,
            Action::Release(release) => release.run(self.sources.open_database().await?.dead_letters.as_ref()).await,
            Action::Redrives(list) => list.run(self.sources.open_database().await?.redrives.as_ref()).await,
            Action::Pause(job) => {
                job.run(self.sources.open_database().await?.redrives.as_ref(), RedriveControl::Pause).await
            }
            Action::Resume(job) => {
                job.run(self.sources.open_database().await?.redrives.as_ref(), RedriveControl::Resume).await
            }
            Action::Stop(job) => {
                job.run(self.sources.open_database().await?.redrives.as_ref(), RedriveControl::Stop).await
            }
            Action::Export(export) => export.run(self.sources.open_database().await?.dead_letters.as_ref()).await,
            Action::Archive(archive) => archive.run(&self.sources).await,
            Action::Archives(archives) => archives.run(&self.sources).await,
            Action::Restore(restore) => restore.run(&self.sources).await,
            Action::Edit(edit) => edit.run(self.sources.open_database().await?.dead_letters.as_ref()).await,
            Action::Discard(discard) => {
                discard.check()?;
                discard.run(self.sources.open_database().await?.dead_letters.as_ref()).await
            }
            Action::Redrive(redrive) => {
                redrive.check()?;
                let config = self.sources.load()?;
                let (plan, guards) = (config.retention_plan(), config.redrive_guards());
                redrive.run(&self.sources.open_database().await?, &plan, guards).await
            }
            Action::Rehearse(rehearse) => {
                rehearse.check()?;
                let guards = self.sources.load()?.redrive_guards();
                rehearse.run(&self.sources.open_database().await?, guards).await
            }
        }
    }
}
