//! `landfall outbox list`.

use clap::Args;
use landfall::{Key, MessageId, OutboxFilter, OutboxState, OutboxView, RowId, TopicName};

use crate::error::Result;
use crate::output::{Output, or_dash};

/// List messages of the outbox by row; by default those that are not sent yet.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall outbox list --limit 20
  landfall outbox list --state retrying
  landfall outbox list --topic orders --key customer-42
  landfall outbox list --state parked --json | jq -r .last_error")]
pub(super) struct List {
    /// State: pending, waiting, retrying, parked or sent; default: pending, waiting and retrying.
    #[arg(long)]
    state: Option<OutboxState>,
    /// Topic of the message.
    #[arg(long)]
    topic: Option<TopicName>,
    /// Ordering key of the message.
    #[arg(long)]
    key: Option<Key>,
    /// Id of the message.
    #[arg(long, value_name = "UUID")]
    id: Option<MessageId>,
    /// Start after this row, the last one of the previous page.
    #[arg(long, value_name = "ROW")]
    after: Option<RowId>,
    /// Maximum number of rows.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) async fn run(self, view: &dyn OutboxView) -> Result<()> {
        let filter = OutboxFilter {
            state: self.state,
            message_id: self.id,
            topic: self.topic,
            key: self.key,
            after: self.after,
        };
        let rows = view.list(&filter, self.limit as usize).await?;
        let columns =
            ["row", "message id", "topic", "key", "state", "attempts", "next attempt", "created", "bytes", "error"];
        Output::new().list(self.json, &rows, columns, |row| {
            [
                row.row.to_string(),
                row.message_id.to_string(),
                row.topic.to_string(),
                or_dash(row.key.as_ref()),
                row.state.as_str().to_owned(),
                row.attempts.to_string(),
                or_dash(row.next_attempt),
                row.created_at.to_string(),
                row.payload_bytes.to_string(),
                or_dash(row.last_error.as_ref()),
            ]
        })
    }
}
