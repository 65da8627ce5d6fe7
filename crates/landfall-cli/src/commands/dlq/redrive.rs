//! `landfall dlq redrive`.

use clap::Args;
use landfall::housekeeping::{RetentionPlan, Span};
use landfall::{DeadLetterFilter, DeadLetterStatus, DeadLetters, Redriven, Timestamp};

use super::filter::Filter;
use super::list;
use crate::actor::actor;
use crate::error::{Error, Result};
use crate::output::Output;

/// Put parked messages back: to their consumer, or to the relay if they were never published.
///
/// Needs a filter, or --all. Only parked ones are redriven; those that wait behind them follow by themselves, in order.
/// Every redrive is written to the audit table under --actor.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall dlq redrive --id 17
  landfall dlq redrive --topic orders --code HANDLER_ERROR --dry-run
  landfall dlq redrive --group billing --limit 10 --actor maria
  landfall dlq redrive --all")]
pub(super) struct Redrive {
    /// Every parked message.
    #[arg(long)]
    all: bool,
    /// List what would be redriven, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// At most this many, oldest first; each in a transaction of its own. Without it all of them, in one transaction.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Also those that have been parked for longer than retention.dead_letters: copies of them may not be recognised any
    /// more.
    #[arg(long)]
    older_than_retention: bool,
    /// Who does this, for the audit table [default: $USER]
    #[arg(long)]
    actor: Option<String>,
    /// One JSON object: redriven and skipped, as lists of ids. With --dry-run one object a line, as `dlq list` shows.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    filter: Filter,
}

/// What a dry run reads at a time.
const PAGE: usize = 1000;

impl Redrive {
    /// Before any connection is made: a redrive of everything must be asked for.
    pub(super) fn check(&self) -> Result<()> {
        if self.all == self.filter.is_empty() {
            return Ok(());
        }
        Err(Error::wrong_use(if self.all {
            "--all redrives everything that is parked; leave it out to use the filter"
        } else {
            "say which dead letters to redrive with a filter such as --id or --topic, or use --all"
        }))
    }

    pub(super) async fn run(self, dead_letters: &dyn DeadLetters, plan: &RetentionPlan) -> Result<()> {
        if self.dry_run {
            return self.show(dead_letters).await;
        }
        let filter = self.filter.to_filter();
        if !self.older_than_retention {
            refuse_older(dead_letters, parked(filter.clone()), plan).await?;
        }
        let actor = actor(self.actor.clone());
        let done = match self.limit {
            None => dead_letters.redrive(&filter, &actor).await?,
            Some(limit) => {
                let mut done = Redriven::default();
                for letter in dead_letters.find(&parked(filter), limit as usize).await? {
                    let one = DeadLetterFilter { id: Some(letter.id), ..Default::default() };
                    let more = dead_letters.redrive(&one, &actor).await?;
                    done.redriven.extend(more.redriven);
                    done.skipped.extend(more.skipped);
                }
                done
            }
        };
        self.report(&done)
    }

    async fn show(&self, dead_letters: &dyn DeadLetters) -> Result<()> {
        let mut filter = parked(self.filter.to_filter());
        // Whoever asks for another status asks for something that no redrive touches.
        let mut missing = match filter.status {
            Some(DeadLetterStatus::Parked) => self.limit.map_or(usize::MAX, |limit| limit as usize),
            _ => 0,
        };
        let mut found = Vec::new();
        while missing > 0 {
            let page = dead_letters.find(&filter, missing.min(PAGE)).await?;
            let Some(last) = page.last() else { break };
            filter.after = Some(last.id);
            missing -= page.len();
            found.extend(page);
        }
        list::print(self.json, &found)
    }

    /// Nothing redriven is "not so" for somebody who named what to redrive, and fine for somebody who said all.
    fn report(&self, done: &Redriven) -> Result<()> {
        let mut output = Output::new();
        if self.json {
            output.json(done)?;
        } else {
            let skipped = match done.skipped.len() {
                0 => String::new(),
                count => format!("; {count} matched and were not parked"),
            };
            output.line(&format!("{} redriven{skipped}", done.redriven.len()))?;
        }
        output.flush()?;
        match (self.all, done.redriven.len(), done.skipped.len()) {
            (false, 0, 0) => Err(Error::not_so("no dead letter matches")),
            (false, 0, _) => Err(Error::not_so("nothing was redriven: what matches is not parked")),
            _ => Ok(()),
        }
    }
}

/// The windows in which copies are recognised were made for letters that wait no longer than their retention. Whoever
/// redrives an older one must know that it may have taken effect before, and be forgotten.
async fn refuse_older(dead_letters: &dyn DeadLetters, filter: DeadLetterFilter, plan: &RetentionPlan) -> Result<()> {
    let Some(kept) = plan.dead_letters.time() else { return Ok(()) };
    let kept_ms = i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
    let end = Timestamp::from_millis(Timestamp::now().as_millis().saturating_sub(kept_ms));
    let to = filter.to.map_or(end, |to| to.min(end));
    let filter = DeadLetterFilter { to: Some(to), ..filter };
    if filter.status != Some(DeadLetterStatus::Parked) {
        return Ok(());
    }
    let Some(oldest) = dead_letters.find(&filter, 1).await?.into_iter().next() else { return Ok(()) };
    let age = Span::Time(oldest.first_seen.elapsed_since(Timestamp::now()));
    Err(Error::not_so(format!(
        "dead letter {} has been there since {}, which is {age}, and retention.dead_letters is {}: a copy of it may have \
         been handled and forgotten; nothing was redriven. Add --older-than-retention to do it all the same, or --from \
         {end} to leave such ones out\n{plan}",
        oldest.id, oldest.first_seen, plan.dead_letters
    )))
}

fn parked(filter: DeadLetterFilter) -> DeadLetterFilter {
    DeadLetterFilter { status: filter.status.or(Some(DeadLetterStatus::Parked)), ..filter }
}
