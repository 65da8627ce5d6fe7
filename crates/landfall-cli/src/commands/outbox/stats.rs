//! `landfall outbox stats`.

use clap::Args;
use landfall::OutboxView;

use crate::error::Result;
use crate::output::Output;

/// How many messages are pending, retrying, parked by the relay and published, and how old the oldest is.
///
/// Every message counts once; one that waits behind a failed one of its key counts as pending.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall outbox stats
  landfall outbox stats --json | jq .pending")]
pub(super) struct Stats {
    /// One JSON object: pending, oldest_seconds, retrying, parked, published.
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
