//! `landfall dlq redrives`, `pause`, `resume` and `stop`: redrive jobs.

use clap::Args;
use landfall::{MessageId, RedriveControl, RedriveJob, Redrives};

use crate::actor::actor;
use crate::error::{Error, Result};
use crate::output::{Output, or_dash};

/// List redrive jobs, the newest first, or show one.
///
/// The daemon runs the jobs; `POST /v1/redrives` starts them. At every moment, matched = succeeded + failed + skipped +
/// missing + remaining.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall dlq redrives
  landfall dlq redrives 0197b1c2-8f3e-7c11-9d2b-6a5f0c3e9d10 --json | jq .remaining")]
pub(super) struct List {
    /// Id of one redrive.
    id: Option<MessageId>,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
    /// Maximum number of redrives.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

impl List {
    pub(super) async fn run(self, redrives: &dyn Redrives) -> Result<()> {
        let jobs = match self.id {
            Some(id) => vec![
                redrives.redrive_job(id).await?.ok_or_else(|| Error::failed(format!("there is no redrive {id}")))?,
            ],
            None => redrives.redrive_jobs(None, self.limit as usize).await?,
        };
        print(self.json, &jobs)
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
    /// Print the redrive as a JSON object.
    #[arg(long)]
    json: bool,
}

impl Control {
    pub(super) async fn run(self, redrives: &dyn Redrives, control: RedriveControl) -> Result<()> {
        let job = redrives.control_redrive(self.id, control, &actor(self.actor)).await?;
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
