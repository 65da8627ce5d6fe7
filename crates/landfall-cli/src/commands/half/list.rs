//! `landfall half list`.

use clap::Args;
use landfall::{HalfMessageFilter, HalfMessages, HalfState, MessageId, TopicName};

use crate::error::{Error, Result};
use crate::output::{Output, or_dash};

/// List half messages, newest first: undecided and decided ones.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall half list --state parked
  landfall half list --business-type order --business-id 42 --json
  landfall half list --contradicted")]
pub(super) struct List {
    /// Only this state: prepared, committed, rolled_back or parked.
    #[arg(long)]
    state: Option<HalfState>,
    #[arg(long)]
    topic: Option<TopicName>,
    #[arg(long, value_name = "TYPE")]
    business_type: Option<String>,
    #[arg(long, value_name = "ID")]
    business_id: Option<String>,
    /// Only those whose first verdict a later decision contradicts.
    #[arg(long)]
    contradicted: bool,
    /// Maximum number of half messages.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Start after this id, the last one of the previous page.
    #[arg(long, value_name = "ID")]
    after: Option<MessageId>,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) async fn run(self, store: &dyn HalfMessages) -> Result<()> {
        let before = match self.after {
            Some(id) => Some((super::find(store, id).await.map_err(unknown_page)?.prepared_at, id)),
            None => None,
        };
        let filter = HalfMessageFilter {
            id: None,
            state: self.state,
            topic: self.topic,
            business_type: self.business_type,
            business_id: self.business_id,
            contradicted: self.contradicted,
            before,
        };
        let found = store.find_half_messages(&filter, self.limit as usize).await?;
        let columns = ["id", "state", "topic", "key", "business", "prepared", "checks", "next check", "last answer"];
        Output::new().list(self.json, &found, columns, |row| {
            [
                row.id.to_string(),
                row.state.as_str().to_owned(),
                or_dash(row.topic.as_ref()),
                or_dash(row.key.as_ref()),
                format!("{} {}", row.business_type, row.business_id),
                row.prepared_at.to_string(),
                row.checks.to_string(),
                or_dash(row.next_check),
                or_dash(row.last_answer.as_ref()),
            ]
        })
    }
}

fn unknown_page(error: Error) -> Error {
    match error {
        Error::Failed(text) => Error::Failed(format!("--after: {text}")),
        other => other,
    }
}
