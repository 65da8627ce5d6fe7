//! `landfall outbox stats`.

use clap::Args;
use landfall::OutboxView;

use crate::error::Result;
use crate::output::Output;

/// Count pending, retrying, parked and published messages, and show the age of the oldest.
///
/// Every message counts once; one that waits behind a failed message of its key counts as pending.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall outbox stats
  landfall outbox stats --json | jq .pending")]
pub(super) struct Stats {
    /// Print one JSON object: pending, oldest_seconds, retrying, parked, published.
    #[arg(long)]
    json: bool,
}

impl Stats {
    pub(super) async fn run(self, view: &dyn OutboxView) -> Result<()> {
        let stats = view.stats().await?;
        let mut output = Output::new();
        if self.json {
            output.json(&stats)?;
        } else {
            output.line(&format!("pending    {}", stats.pending))?;
            output.line(&format!("retrying   {}", stats.retrying))?;
            output.line(&format!("parked     {}", stats.parked))?;
            output.line(&format!("published  {}", stats.published))?;
            output.line(&format!("oldest     {:.1} s", stats.oldest_seconds))?;
        }
        output.flush()
    }
}
