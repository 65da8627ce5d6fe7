//! `landfall dlq list`.

use clap::Args;
use landfall::{DeadLetter, DeadLetterFilter, DeadLetterId, DeadLetters};

use super::filter::Filter;
use crate::error::Result;
use crate::output::{Output, or_dash};

/// List open dead letters, oldest first; with --status all, also those that are done or discarded.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall dlq list --status parked
  landfall dlq list --topic orders --key customer-42
  landfall dlq list --code HANDLER_ERROR --from 2026-11-15T08:00:00Z --json | jq -r .message_id")]
pub(super) struct List {
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
    /// Maximum number of dead letters.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Start after this id, the last one of the previous page.
    #[arg(long, value_name = "ID")]
    after: Option<DeadLetterId>,
    #[command(flatten)]
    filter: Filter,
}

impl List {
    pub(super) async fn run(self, dead_letters: &dyn DeadLetters) -> Result<()> {
        let filter = DeadLetterFilter { after: self.after, ..self.filter.or_open().to_filter() };
        let found = dead_letters.list_letters(&filter, self.limit as usize).await?;
        print(self.json, &found)
    }
}

/// Prints the list, also for the dry run of a redrive.
pub(super) fn print(json: bool, letters: &[DeadLetter]) -> Result<()> {
    let columns = ["id", "status", "message id", "group", "topic", "key", "code", "attempts", "first seen", "error"];
    Output::new().list(json, letters, columns, |letter| {
        [
            letter.id.to_string(),
            letter.status.as_str().to_owned(),
            letter.message_id.to_string(),
            letter.group.as_ref().map_or_else(|| "(relay)".to_owned(), ToString::to_string),
            letter.topic.to_string(),
            or_dash(letter.key.as_ref()),
            letter.error_code.clone(),
            letter.attempts.to_string(),
            letter.first_seen.to_string(),
            letter.error.clone(),
        ]
    })
}
