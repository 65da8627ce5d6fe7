//! `landfall dlq discard`.

use clap::Args;
use landfall::{DeadLetters, Discarded};

use super::filter::Filter;
use crate::actor::actor;
use crate::error::{Error, Result};
use crate::output::Output;

/// Discard parked messages that can never succeed, and let their keys continue.
///
/// A discarded message never takes effect. Messages that wait behind it follow, in order. The audit table records the
/// reason and --actor. Redrive a message that can succeed; edit one whose payload is wrong.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall dlq discard --id 17 --reason 'test order, see INC-42'
  landfall dlq discard --topic orders --code UPSTREAM_4XX --reason 'customer deleted' --actor maria")]
pub(super) struct Discard {
    /// Why; recorded in the audit table.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Name for the audit table [default: $USER]
    #[arg(long)]
    actor: Option<String>,
    /// Print one JSON object with the lists of ids discarded and skipped.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    filter: Filter,
}

impl Discard {
    /// Requires a filter and a reason, before any connection is made.
    pub(super) fn check(&self) -> Result<()> {
        if self.filter.is_empty() {
            return Err(Error::usage("select the dead letters to discard with a filter such as --id or --topic"));
        }
        if self.reason.trim().is_empty() {
            return Err(Error::usage("--reason is empty; say why the message is discarded"));
        }
        Ok(())
    }

    pub(super) async fn run(self, dead_letters: &dyn DeadLetters) -> Result<()> {
        let done = dead_letters.discard(&self.filter.to_filter(), &self.reason, &actor(self.actor)).await?;
        report(self.json, &done)
    }
}

fn report(json: bool, done: &Discarded) -> Result<()> {
    let mut output = Output::new();
    if json {
        output.json(done)?;
    } else {
        let skipped = match done.skipped.len() {
            0 => String::new(),
            count => format!("; {count} matched but were not parked"),
        };
        output.line(&format!("{} discarded{skipped}", done.discarded.len()))?;
    }
    output.flush()?;
    match (done.discarded.len(), done.skipped.len()) {
        (0, 0) => Err(Error::failed("no dead letter matches")),
        (0, _) => Err(Error::failed("nothing was discarded: no matching dead letter is parked")),
        _ => Ok(()),
    }
}
