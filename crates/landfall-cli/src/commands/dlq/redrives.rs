//! `landfall dlq redrives`, `pause`, `resume` and `stop`: redrive jobs.

use clap::Args;
use landfall::{DeadLetterId, JobFailure, JobLetterState, MessageId, RedriveControl, RedriveId, RedriveJob, Redrives};

use crate::actor::actor;
use crate::error::{Error, Result};
use crate::output::{Output, or_dash};

/// List redrive jobs, the newest first, or show one.
///
/// The daemon runs the jobs; `landfall dlq redrive --job` and `POST /v1/redrives` start them. At every moment,
/// matched = succeeded + failed + skipped + missing + remaining. With --items, what became of each message of a job.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall dlq redrives
  landfall dlq redrives 0197b1c2-8f3e-7c11-9d2b-6a5f0c3e9d10 --json | jq .remaining
  landfall dlq redrives 0197b1c2-8f3e-7c11-9d2b-6a5f0c3e9d10 --items --state failed")]
pub(super) struct List {
    /// Id of one redrive.
    id: Option<MessageId>,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
    /// Maximum number of redrives, or of messages with --items.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// List the messages of the redrive with their outcomes, by the ids of their dead letters.
    #[arg(long, requires = "id")]
    items: bool,
    /// Only messages in this state: waiting, dispatched, succeeded, failed, skipped or missing.
    #[arg(long, requires = "items")]
    state: Option<JobLetterState>,
    /// Start after this dead letter, the last one of the previous page.
    #[arg(long, requires = "items", value_name = "ID")]
    after: Option<DeadLetterId>,
}

impl List {
    pub(super) async fn run(self, redrives: &dyn Redrives) -> Result<()> {
        if let Some(id) = self.id.filter(|_| self.items) {
            return self.print_items(redrives, id).await;
        }
        let jobs = match self.id {
            Some(id) => vec![
                redrives.redrive_job(id).await?.ok_or_else(|| Error::failed(format!("there is no redrive {id}")))?,
            ],
            None => redrives.redrive_jobs(None, self.limit as usize).await?,
        };
        print(self.json, &jobs)
    }

    async fn print_items(&self, redrives: &dyn Redrives, id: RedriveId) -> Result<()> {
        if redrives.redrive_job(id).await?.is_none() {
            return Err(Error::failed(format!("there is no redrive {id}")));
        }
        let letters = redrives.job_letters(id, self.state, self.after, self.limit as usize).await?;
        let columns = ["dead letter", "state", "skipped because", "error", "fingerprint"];
        Output::new().list(self.json, &letters, columns, |letter| {
            [
                letter.dead_letter_id.to_string(),
                letter.state.as_str().to_owned(),
                or_dash(letter.skip.as_ref()),
                or_dash(letter.failure.map(JobFailure::as_str)),
                or_dash(letter.fingerprint.as_ref()),
            ]
        })
    }
}

/// Change a redrive job. A paused or stopped one hands back no further message.
#[derive(Debug, Args)]
pub(super) struct Control {
    /// Id of the redrive.
    id: MessageId,
    /// Name for the audit table [default: $USER]
    #[arg(long)]
    actor: Option<String>,
    /// Why; recorded in the audit table.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Print the redrive as a JSON object.
    #[arg(long)]
    json: bool,
}

impl Control {
    pub(super) async fn run(self, redrives: &dyn Redrives, control: RedriveControl) -> Result<()> {
        let reason = self.reason.unwrap_or_default();
        let job = redrives.control_redrive_because(self.id, control, &reason, &actor(self.actor)).await?;
        print(self.json, &[job])
    }
}

pub(super) fn print(json: bool, jobs: &[RedriveJob]) -> Result<()> {
    let columns = [
        "id",
        "state",
        "matched",
        "succeeded",
        "failed",
        "skipped",
        "missing",
        "remaining",
        "actor",
        "started",
        "reason",
    ];
    Output::new().list(json, jobs, columns, |job| {
        let counts = job.counts;
        [
            job.id.to_string(),
            job.state.as_str().to_owned(),
            counts.matched.to_string(),
            counts.succeeded.to_string(),
            counts.failed.to_string(),
            counts.skipped.to_string(),
            counts.missing.to_string(),
            counts.remaining.to_string(),
            job.actor.clone(),
            job.created_at.to_string(),
            or_dash(job.stop_reason.as_ref().or(Some(&job.reason)).filter(|text| !text.is_empty())),
        ]
    })
}
