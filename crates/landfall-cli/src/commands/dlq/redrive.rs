//! `landfall dlq redrive`.

use clap::Args;
use landfall::housekeeping::{RetentionPlan, Span};
use landfall::{
    DeadLetterFilter, DeadLetterStatus, DeadLetters, ImmediateRedrive, ImmediatelyRedriven, RedriveGuards, Skip,
    Timestamp,
};

use super::filter::Filter;
use super::job::JobOptions;
use super::list;
use crate::actor::actor;
use crate::error::{Error, Result};
use crate::output::Output;
use crate::stores::Database;

/// Redrive parked messages: hand them back to their consumer, or to the relay if they were never published.
///
/// Needs a filter or --all. Redrives only parked messages; those that wait behind them follow automatically, in order.
/// Skips what a redrive job would skip, such as blocked keys; a message that is selected by --id alone is redriven
/// regardless. Everything is handed back at once: for many messages, add --job. Every redrive is recorded in the audit
/// table under --actor, with --reason.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall dlq redrive --id 17 --reason 'the address is corrected'
  landfall dlq redrive --topic orders --code HANDLER_ERROR --dry-run
  landfall dlq redrive --group billing --limit 10 --actor maria
  landfall dlq redrive --all
  landfall dlq redrive --fingerprint 1-0f3a5b7c9d1e2f40 --job --reason 'the bank is back'")]
pub(super) struct Redrive {
    /// Redrive every parked message.
    #[arg(long, conflicts_with = "job")]
    all: bool,
    /// List the messages that would be redriven, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Redrive at most this many, oldest first.
    #[arg(long, conflicts_with = "job", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Also redrive messages parked for longer than retention.dead_letters, whose duplicates may no longer be
    /// recognized.
    #[arg(long, conflicts_with = "job")]
    older_than_retention: bool,
    /// Name for the audit table [default: $USER]
    #[arg(long)]
    actor: Option<String>,
    /// Print one JSON object with the lists of ids redriven and skipped, and the ids by reason if any was skipped; with
    /// --dry-run, one object per line as in `dlq list`.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    job: JobOptions,
    #[command(flatten)]
    filter: Filter,
}

/// Dead letters that a dry run reads at a time.
const PAGE: usize = 1000;

impl Redrive {
    /// Requires either a filter or `--all`, before any connection is made.
    pub(super) fn check(&self) -> Result<()> {
        if self.job.job && self.filter.is_empty() {
            return Err(Error::usage("a redrive job needs a filter such as --topic or --fingerprint"));
        }
        if self.all == self.filter.is_empty() {
            return Ok(());
        }
        Err(Error::usage(if self.all {
            "--all redrives every parked message and cannot be combined with a filter; omit one of them"
        } else {
            "select the dead letters to redrive with a filter such as --id or --topic, or use --all"
        }))
    }

    pub(super) async fn run(self, database: &Database, plan: &RetentionPlan, guards: RedriveGuards) -> Result<()> {
        let dead_letters = &*database.dead_letters;
        if self.job.job {
            let redrives = &*database.redrives;
            return match self.dry_run {
                true => self.job.rehearse(redrives, &self.filter, &guards, self.json).await,
                false => self.job.run(redrives, &self.filter, &actor(self.actor.clone()), self.json).await,
            };
        }
        if self.dry_run {
            return self.show(dead_letters).await;
        }
        let filter = self.filter.to_filter();
        if !self.older_than_retention {
            refuse_older(dead_letters, parked(filter.clone()), plan).await?;
        }
        // A person who names one letter has looked at it. What is too old was refused as a whole.
        let guards = (!self.filter.is_one_letter()).then_some(RedriveGuards { max_age: None, ..guards });
        let reason = self.job.reason.clone().unwrap_or_default();
        let request = ImmediateRedrive { filter, guards, limit: self.limit.map(|limit| limit as usize), reason };
        self.report(&database.redrives.redrive_at_once(&request, &actor(self.actor.clone())).await?)
    }

    async fn show(&self, dead_letters: &dyn DeadLetters) -> Result<()> {
        let mut filter = parked(self.filter.to_filter());
        // A redrive affects only parked messages, so another status matches none.
        let mut missing = match filter.status {
            Some(DeadLetterStatus::Parked) => self.limit.map_or(usize::MAX, |limit| limit as usize),
            _ => 0,
        };
        let mut found = Vec::new();
        while missing > 0 {
            let page = dead_letters.list_letters(&filter, missing.min(PAGE)).await?;
            let Some(last) = page.last() else { break };
            filter.after = Some(last.id);
            missing -= page.len();
            found.extend(page);
        }
        list::print(self.json, &found)
    }

    /// Prints the result. Redriving nothing is an error with a filter, and fine with `--all`.
    fn report(&self, done: &ImmediatelyRedriven) -> Result<()> {
        let (redriven, skipped) = (done.letters.redriven.len(), done.letters.skipped.len());
        let mut output = Output::new();
        if self.json {
            output.json(done)?;
        } else {
            let parts: String = done.reasons.iter().map(|(reason, ids)| explain(reason, ids.len())).collect();
            output.line(&format!("{redriven} redriven{parts}"))?;
        }
        output.flush()?;
        let is_any_parked = done.reasons.keys().any(|reason| *reason != Skip::NotParked.as_str());
        match (self.all, redriven, skipped) {
            (false, 0, 0) => Err(Error::failed("no dead letter matches")),
            (false, 0, _) if is_any_parked => Err(Error::failed(
                "nothing was redriven: the guards skipped every matching dead letter; --id redrives one regardless",
            )),
            (false, 0, _) => Err(Error::failed("nothing was redriven: no matching dead letter is parked")),
            _ => Ok(()),
        }
    }
}

/// Says how many letters were skipped for a reason.
fn explain(reason: &str, count: usize) -> String {
    match reason {
        "not-parked" => format!("; {count} matched but were not parked"),
        reason => format!("; {count} skipped: {reason}"),
    }
}

/// Refuses letters older than their retention. The deduplication windows cover only younger ones: an older letter may
/// already have taken effect, and its id may be forgotten.
async fn refuse_older(dead_letters: &dyn DeadLetters, filter: DeadLetterFilter, plan: &RetentionPlan) -> Result<()> {
    let Some(kept) = plan.dead_letters.time() else { return Ok(()) };
    let kept_ms = i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
    let end = Timestamp::from_millis(Timestamp::now().as_millis().saturating_sub(kept_ms));
    let to = filter.to.map_or(end, |to| to.min(end));
    let filter = DeadLetterFilter { to: Some(to), ..filter };
    if filter.status != Some(DeadLetterStatus::Parked) {
        return Ok(());
    }
    let Some(oldest) = dead_letters.list_letters(&filter, 1).await?.into_iter().next() else { return Ok(()) };
    let age = Span::Time(oldest.first_seen.elapsed_since(Timestamp::now()));
    Err(Error::failed(format!(
        "dead letter {} is {age} old (first seen {}), and retention.dead_letters is {}: a duplicate of it may have \
         been handled and its id forgotten; nothing was redriven. Add --older-than-retention to redrive it anyway, or \
         --from {end} to exclude older ones\n{plan}",
        oldest.id, oldest.first_seen, plan.dead_letters
    )))
}

fn parked(filter: DeadLetterFilter) -> DeadLetterFilter {
    DeadLetterFilter { status: filter.status.or(Some(DeadLetterStatus::Parked)), ..filter }
}
