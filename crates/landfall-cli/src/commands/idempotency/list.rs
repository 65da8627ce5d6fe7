//! `landfall idempotency list`.

use clap::Args;
use landfall::idempotency::{IdentityKind, OneTimeTokens, RecordFilter, RecordId, RecordState, Scope};

use crate::error::{Error, Result};
use crate::output::{Output, or_dash};

/// List idempotency records, newest first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall idempotency list --state uncertain
  landfall idempotency list --business-type payment --json")]
pub(super) struct List {
    /// Only this state: issued, in_flight, completed, released or uncertain.
    #[arg(long)]
    state: Option<RecordState>,
    /// Only this kind: record, token or window.
    #[arg(long)]
    kind: Option<IdentityKind>,
    /// Only this scope; * for the records without one.
    #[arg(long)]
    scope: Option<Scope>,
    #[arg(long, value_name = "TYPE")]
    business_type: Option<String>,
    #[arg(long)]
    key: Option<String>,
    /// Maximum number of records.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Start after this id, the last one of the previous page.
    #[arg(long, value_name = "ID")]
    after: Option<RecordId>,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) async fn run(self, store: &dyn OneTimeTokens) -> Result<()> {
        let before = match self.after {
            Some(id) => Some((super::find(store, id).await.map_err(unknown_page)?.claimed_at, id)),
            None => None,
        };
        let filter = RecordFilter {
            id: None,
            kind: self.kind,
            state: self.state,
            scope: self.scope,
            business_type: self.business_type,
            key: self.key,
            before,
        };
        let found = store.find_records(&filter, self.limit as usize).await?;
        let columns = ["id", "kind", "state", "scope", "business type", "key", "claimed", "status", "reason"];
        Output::new().list(self.json, &found, columns, |row| {
            [
                row.id.to_string(),
                row.kind.as_str().to_owned(),
                row.state.as_str().to_owned(),
                row.scope.to_string(),
                row.business_type.clone(),
                row.key.clone(),
                row.claimed_at.to_string(),
                or_dash(row.status),
                or_dash(row.reason.as_ref()),
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
