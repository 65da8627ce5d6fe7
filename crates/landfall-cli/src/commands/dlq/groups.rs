//! `landfall dlq groups`.

use clap::Args;
use landfall::DeadLetters;

use super::filter::Filter;
use crate::error::Result;
use crate::output::Output;

/// Group parked messages by the cause of their failure, the largest group first.
///
/// Errors that differ only in ids, numbers, dates, addresses and quoted text have the same fingerprint.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall dlq groups --topic orders
  landfall dlq groups --json | jq -r '.fingerprint' | head -1")]
pub(super) struct Groups {
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
    /// Maximum number of groups.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    #[command(flatten)]
    filter: Filter,
}

impl Groups {
    pub(super) async fn run(self, dead_letters: &dyn DeadLetters) -> Result<()> {
        let groups = dead_letters.dead_letter_groups(&self.filter.to_filter(), self.limit as usize).await?;
        let columns = ["fingerprint", "count", "code", "first seen", "last seen", "sample", "error"];
        Output::new().list(self.json, &groups, columns, |group| {
            [
                group.fingerprint.clone(),
                group.count.to_string(),
                group.error_code.clone(),
                group.first_seen.to_string(),
                group.last_seen.to_string(),
                group.sample.to_string(),
                group.error.clone(),
            ]
        })
    }
}
