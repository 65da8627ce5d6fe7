//! `landfall idempotency show`.

use clap::Args;
use landfall::idempotency::{OnUnknown, OneTimeTokens, RecordId};

use crate::error::Result;
use crate::output::{Output, escaped, or_dash};

/// Show an idempotency record: its state, its lease and what is stored of its answer.
#[derive(Debug, Args)]
pub(super) struct Show {
    id: RecordId,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(super) async fn run(self, store: &dyn OneTimeTokens) -> Result<()> {
        let row = super::find(store, self.id).await?;
        let mut output = Output::new();
        if self.json {
            output.json(&row)?;
            return output.flush();
        }
        let on_unknown = match row.on_unknown {
            OnUnknown::Rerun => "rerun",
            OnUnknown::Uncertain => "uncertain",
        };
        for (name, value) in [
            ("id", row.id.to_string()),
            ("kind", row.kind.as_str().to_owned()),
            ("scope", row.scope.to_string()),
            ("business type", row.business_type.clone()),
            ("key", row.key.clone()),
            ("state", row.state.as_str().to_owned()),
            ("epoch", row.epoch.to_string()),
            ("on unknown", on_unknown.to_owned()),
            ("claimed", row.claimed_at.to_string()),
            ("updated", row.updated_at.to_string()),
            ("expires", or_dash(row.expires_at)),
            ("status", or_dash(row.status)),
            ("body", or_dash(row.body.as_ref())),
            ("body bytes", or_dash(row.body_bytes)),
            ("reason", or_dash(row.reason.as_ref())),
        ] {
            output.line(&format!("{name:<13} {}", escaped(&value)))?;
        }
        output.flush()
    }
}
