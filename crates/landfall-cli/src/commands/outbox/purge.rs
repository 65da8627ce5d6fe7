//! `landfall outbox purge`.

use std::time::Duration;

use clap::Args;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use landfall::Housekeeping;
use serde::Serialize;

use crate::error::Result;
use crate::output::Output;
use crate::units;

/// Remove sent messages that were kept, in small steps that hold nobody up.
///
/// Only what was sent goes; `landfall serve` does the same by itself as retention.sent says. Interrupted, it has removed
/// what it counted so far.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall outbox purge --sent-before 7d
  landfall outbox purge --sent-before 0 --json")]
pub(super) struct Purge {
    /// Sent longer ago than this: 7d, 36h, 90s; 0 for all of them.
    #[arg(long, value_name = "AGE", value_parser = age)]
    sent_before: Duration,
    /// One JSON object: removed.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Removed {
    removed: u64,
}

/// Removed in one transaction.
const STEP: u64 = 1000;

fn age(text: &str) -> std::result::Result<Duration, String> {
    units::age(text).map_err(|wanted| format!("it {wanted}"))
}

impl Purge {
    pub(super) async fn run(self, housekeeping: &dyn Housekeeping) -> Result<()> {
        // Draws nothing where stderr is not a terminal.
        let bar = ProgressBar::no_length();
        if let Ok(style) = ProgressStyle::with_template("  {spinner} {human_pos} removed  {elapsed}  {per_sec}") {
            bar.set_style(style);
        }
        let mut removed = 0;
        loop {
            let step = housekeeping.remove_sent(self.sent_before, STEP).await?;
            removed += step;
            bar.set_position(removed);
            if step < STEP {
                break;
            }
        }
        bar.finish_and_clear();
        let mut output = Output::new();
        if self.json {
            output.json(&Removed { removed })?;
        } else {
            output.line(&format!("{} removed", HumanCount(removed)))?;
        }
        output.flush()
    }
}
