//! `landfall outbox purge`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use landfall::housekeeping::Expiring;
use landfall::{Housekeeping, OutboxControl, OutboxDetail};
use serde::Serialize;

use crate::actor::actor;
use crate::archive::JsonLines;
use crate::error::Result;
use crate::output::Output;
use crate::payload::Payload;
use crate::units;

/// Remove old sent messages from the outbox, in small transactions.
///
/// Removes only messages in the state sent; `landfall serve` does so automatically after retention.sent. An interrupted
/// purge keeps what it has removed so far. The audit table records it under --actor, before the first removal and at
/// the end with the count.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall outbox purge --sent-before 7d
  landfall outbox purge --sent-before 7d --archive sent-2026-11.jsonl
  landfall outbox purge --sent-before 0 --json")]
pub(super) struct Purge {
    /// Remove messages sent longer ago than this: 7d, 36h, 90s; 0 for all.
    #[arg(long, value_name = "AGE", value_parser = age)]
    sent_before: Duration,
    /// Append each message to this file first, one JSON object per line with the fields of `outbox show --json`. A
    /// message is removed after its line is fsynced: a crash may leave it in both places, never in neither.
    #[arg(long, value_name = "FILE")]
    archive: Option<PathBuf>,
    /// Name for the audit table [default: $USER]
    #[arg(long)]
    actor: Option<String>,
    /// Print one JSON object: removed, and archived with --archive.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Default, Serialize)]
struct Done {
    removed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    archived: Option<u64>,
}

/// Rows removed in one transaction.
const STEP: u64 = 1000;
/// Rows removed in one transaction with an archive; smaller, since their payloads are in memory.
const PAGE: u64 = 200;

fn age(text: &str) -> std::result::Result<Duration, String> {
    units::age(text).map_err(|wanted| format!("it {wanted}"))
}

impl Purge {
    pub(super) async fn run(self, housekeeping: &dyn Housekeeping, control: &dyn OutboxControl) -> Result<()> {
        let actor = actor(self.actor.clone());
        let age = format!("sent longer ago than {:?}", self.sent_before);
        control.record_action(&actor, "purge", &age).await?;
        // Draws nothing if stderr is not a terminal.
        let bar = ProgressBar::no_length();
        if let Ok(style) = ProgressStyle::with_template("  {spinner} {human_pos} removed  {elapsed}  {per_sec}") {
            bar.set_style(style);
        }
        let mut archive = self.archive.as_deref().map(JsonLines::open).transpose()?;
        let mut done = Done { archived: archive.is_some().then_some(0), ..Done::default() };
        loop {
            let is_last = match &mut archive {
                Some(archive) => {
                    let old = housekeeping.old_sent(self.sent_before, PAGE).await?;
                    archive.append(old.iter().map(|detail| {
                        let payload = Payload::from_bytes(&detail.payload);
                        Line { detail, payload }
                    }))?;
                    let rows: Vec<_> = old.iter().map(|detail| detail.row.row).collect();
                    done.removed += housekeeping.remove_these_sent(&rows).await?;
                    done.archived = done.archived.map(|archived| archived + old.len() as u64);
                    (old.len() as u64) < PAGE
                }
                None => {
                    let step = self.remove(housekeeping).await?;
                    done.removed += step;
                    step == 0
                }
            };
            bar.set_position(done.removed);
            if is_last {
                break;
            }
        }
        bar.finish_and_clear();
        control.record_action(&actor, "purge-done", &format!("{age}: {} removed", done.removed)).await?;
        let mut output = Output::new();
        match (self.json, done.archived) {
            (true, _) => output.json(&done)?,
            (false, None) => output.line(&format!("{} removed", HumanCount(done.removed)))?,
            (false, Some(archived)) => {
                output.line(&format!("{} archived, {} removed", HumanCount(archived), HumanCount(done.removed)))?;
            }
        }
        output.flush()
    }

    /// Removes some messages and returns how many; none means that none is left. A database that does not keep sent
    /// messages may still have some, which it removes on its own later, and `remove_expired` leaves them to it.
    async fn remove(&self, housekeeping: &dyn Housekeeping) -> Result<u64> {
        let removed = housekeeping.remove_expired(Expiring::Sent, self.sent_before, STEP).await?;
        if removed > 0 {
            return Ok(removed);
        }
        let old = housekeeping.old_sent(self.sent_before, PAGE).await?;
        let rows: Vec<_> = old.iter().map(|detail| detail.row.row).collect();
        Ok(housekeeping.remove_these_sent(&rows).await?)
    }
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    detail: &'a OutboxDetail,
    #[serde(flatten)]
    payload: Payload,
}
