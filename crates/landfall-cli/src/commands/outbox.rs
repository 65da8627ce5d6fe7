//! `landfall outbox`: what waits to be published.

use clap::{Args, Subcommand};
use landfall::{OutboxFilter, RowId};

use super::sources::Sources;
use crate::error::Result;
use crate::output::{Output, or_dash};

/// What waits to be published.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall outbox stats
  landfall outbox stats --json | jq .pending
  landfall outbox list --limit 20
  landfall outbox list --database-url postgres://shop@db/shop --json")]
pub(crate) struct Outbox {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    sources: Sources,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// How many messages are pending, retrying, parked by the relay and published, and how old the oldest is.
    Stats {
        /// One JSON object: pending, oldest_seconds, retrying, parked, published.
        #[arg(long)]
        json: bool,
    },
    /// The messages that are not published yet, oldest first.
    List {
        /// At most this many.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
        /// Only rows after this one: the last row of the page before.
        #[arg(long, value_name = "ROW")]
        after: Option<RowId>,
        /// One JSON object a line.
        #[arg(long)]
        json: bool,
    },
}

impl Outbox {
    pub(crate) async fn run(self) -> Result<()> {
        let view = self.sources.open_database().await?.view;
        let mut output = Output::new();
        match self.action {
            Action::Stats { json: true } => output.json(&view.stats().await?)?,
            Action::Stats { json: false } => {
                let stats = view.stats().await?;
                output.line(&format!("pending    {}", stats.pending))?;
                output.line(&format!("retrying   {}", stats.retrying))?;
                output.line(&format!("parked     {}", stats.parked))?;
                output.line(&format!("published  {}", stats.published))?;
                output.line(&format!("oldest     {:.1} s", stats.oldest_seconds))?;
            }
            Action::List { limit, after, json } => {
                let rows = view.list(&OutboxFilter { after, ..OutboxFilter::default() }, limit as usize).await?;
                let columns = ["row", "message id", "topic", "key", "state", "attempts", "created", "bytes", "error"];
                output.list(json, &rows, columns, |row| {
                    [
                        row.row.to_string(),
                        row.message_id.to_string(),
                        row.topic.to_string(),
                        or_dash(row.key.as_ref()),
                        row.state.as_str().to_owned(),
                        row.attempts.to_string(),
                        row.created_at.to_string(),
                        row.payload_bytes.to_string(),
                        or_dash(row.last_error.as_ref()),
                    ]
                })?;
            }
        }
        output.flush()
    }
}
