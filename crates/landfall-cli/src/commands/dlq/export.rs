//! `landfall dlq export`.

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use landfall::DeadLetters;

use super::filter::Filter;
use super::show::Detail;
use crate::error::Result;
use crate::output::Output;

/// Print dead letters with their payloads as JSON lines, oldest first; open ones unless filters say otherwise.
///
/// An object has the fields of `dlq show --json`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall dlq export --topic orders > orders.jsonl
  landfall dlq export --status all --from 2026-11-01T00:00:00Z | zstd > letters.jsonl.zst")]
pub(super) struct Export {
    #[command(flatten)]
    filter: Filter,
}

/// Letters read together; few, since their payloads are in memory.
const PAGE: usize = 200;

impl Export {
    pub(super) async fn run(self, dead_letters: &dyn DeadLetters) -> Result<()> {
        let mut filter = self.filter.or_open().to_filter();
        // Draws nothing if stderr is not a terminal.
        let bar = ProgressBar::no_length();
        if let Ok(style) = ProgressStyle::with_template("  {spinner} {human_pos} exported  {elapsed}  {per_sec}") {
            bar.set_style(style);
        }
        let mut output = Output::new();
        loop {
            let page = dead_letters.find(&filter, PAGE).await?;
            for letter in &page {
                output.json(&Detail::new(letter))?;
            }
            bar.inc(page.len() as u64);
            match page.last() {
                Some(last) if page.len() == PAGE => filter.after = Some(last.id),
                _ => break,
            }
        }
        bar.finish_and_clear();
        output.flush()
    }
}
