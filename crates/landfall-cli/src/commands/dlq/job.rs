//! `landfall dlq redrive --job`: starts a redrive job and follows it.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use landfall::{
    AtLeast, RedriveGuards, RedriveId, RedriveJob, RedriveLane, RedriveOptions, RedriveRequest, RedriveSelection,
    RedriveStarted, RedriveState, Redrives,
};
use serde::Serialize;
use serde_json::json;

use super::filter::Filter;
use super::redrives;
use crate::error::{Error, Result};
use crate::output::Output;

/// A dry run predicts up to this many letters.
const MAX_REHEARSED: usize = 10_000;

/// How often the progress is read.
const EVERY: Duration = Duration::from_millis(250);

#[derive(Debug, Args)]
#[command(next_help_heading = "Redrive job")]
pub(super) struct JobOptions {
    /// Start a redrive job, which a daemon runs, and follow it until it ends. It survives this command and a crash.
    #[arg(long)]
    pub(super) job: bool,
    /// Print the job at once and do not follow it.
    #[arg(long, requires = "job")]
    detach: bool,
    /// Lane of the job: slow (50 messages a second) or main (without a rate).
    #[arg(long, requires = "job")]
    lane: Option<RedriveLane>,
    /// Messages a second, in place of the lane's rate.
    #[arg(long, requires = "job", value_name = "N")]
    rate: Option<u32>,
    /// Why; recorded in the audit table, also without --job.
    #[arg(long, value_name = "TEXT")]
    pub(super) reason: Option<String>,
}

#[derive(Debug, Serialize)]
struct DryRun {
    matched: AtLeast,
    /// How many messages have each prediction.
    predictions: BTreeMap<&'static str, u64>,
}

impl JobOptions {
    fn request(&self, filter: &Filter) -> Result<RedriveRequest> {
        let mut options = RedriveOptions::new(self.lane.unwrap_or_default());
        options.rate_per_s = self.rate.or(options.rate_per_s);
        options.check()?;
        let selection = RedriveSelection::Filter(Box::new(filter.to_filter()));
        selection.check()?;
        let shown = json!({ "filter": filter.to_json() }).to_string();
        let reason = self.reason.clone().unwrap_or_default();
        Ok(RedriveRequest { selection, options, reason, shown, given: None, expected: None })
    }

    pub(super) async fn run(&self, redrives: &dyn Redrives, filter: &Filter, actor: &str, json: bool) -> Result<()> {
        let job = match redrives.start_redrive(&self.request(filter)?, actor).await? {
            RedriveStarted::New(job) | RedriveStarted::Repeated(job) => job,
            RedriveStarted::Conflict(id) => return Err(Error::failed(format!("redrive {id} exists already"))),
        };
        if job.counts.matched == 0 {
            return Err(Error::failed("no parked dead letter matches"));
        }
        let job = if self.detach { job } else { follow(redrives, job.id).await? };
        let is_unfinished = job.state == RedriveState::Stopped || job.counts.failed > 0;
        redrives::print(json, &[job])?;
        if is_unfinished { Err(Error::failed("not every message was redriven")) } else { Ok(()) }
    }

    pub(super) async fn rehearse(
        &self,
        redrives: &dyn Redrives,
        filter: &Filter,
        guards: &RedriveGuards,
        json: bool,
    ) -> Result<()> {
        let selection = self.request(filter)?.selection;
        let mut letters = redrives.rehearse_redrive(&selection, guards, MAX_REHEARSED + 1).await?;
        let at_least = letters.len() > MAX_REHEARSED;
        letters.truncate(MAX_REHEARSED);
        let mut predictions = BTreeMap::new();
        for letter in &letters {
            *predictions.entry(letter.outcome.as_str()).or_default() += 1;
        }
        let dry = DryRun { matched: AtLeast { count: letters.len() as u64, at_least }, predictions };
        let mut output = Output::new();
        if json {
            output.json(&dry)?;
        } else {
            let more = if at_least { "at least " } else { "" };
            output.line(&format!("{more}{} match", dry.matched.count))?;
            for (prediction, count) in &dry.predictions {
                output.line(&format!("{count:>8}  {prediction}"))?;
            }
        }
        output.flush()
    }
}

/// Shows the progress until the job ends or is paused. An interruption leaves the job running.
async fn follow(redrives: &dyn Redrives, id: RedriveId) -> Result<RedriveJob> {
    // Draws nothing if stderr is not a terminal.
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("  {bar:30} {pos}/{len}  {per_sec}  {eta}  {msg}") {
        bar.set_style(style);
    }
    loop {
        let job = redrives.redrive_job(id).await?;
        let job = job.ok_or_else(|| Error::failed(format!("redrive {id} is gone")))?;
        bar.set_length(job.counts.matched);
        bar.set_position(job.counts.matched - job.counts.remaining);
        bar.set_message(format!("{} failed", job.counts.failed));
        if job.state != RedriveState::Running {
            bar.finish_and_clear();
            return Ok(job);
        }
        tokio::time::sleep(EVERY).await;
    }
}
