//! `landfall half show`.

use clap::Args;
use landfall::HalfMessages;

use super::HalfId;
use crate::error::Result;
use crate::output::{Output, escaped, or_dash};

/// Show a half message: its state, its business, its check-backs and who decided.
#[derive(Debug, Args)]
pub(super) struct Show {
    id: HalfId,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(super) async fn run(self, store: &dyn HalfMessages) -> Result<()> {
        let row = super::find(store, self.id.0).await?;
        let mut output = Output::new();
        if self.json {
            output.json(&row)?;
            return output.flush();
        }
        for (name, value) in [
            ("id", row.id.to_string()),
            ("state", row.state.as_str().to_owned()),
            ("topic", or_dash(row.topic.as_ref())),
            ("key", or_dash(row.key.as_ref())),
            ("kind", or_dash(row.kind.as_ref())),
            ("business", format!("{} {}", row.business_type, row.business_id)),
            ("database", or_dash(row.check_back.database.as_ref())),
            ("http", or_dash(row.check_back.http.as_ref())),
            ("grpc", or_dash(row.check_back.grpc.as_ref())),
            ("prepared", row.prepared_at.to_string()),
            ("checks", row.checks.to_string()),
            ("next check", or_dash(row.next_check)),
            ("last answer", or_dash(row.last_answer.as_ref())),
            ("decided", or_dash(row.decided_at)),
            ("decided by", or_dash(row.decided_by.as_ref())),
            ("contradicted", or_dash(row.contradicted_at)),
            ("  by", or_dash(row.contradicted_by.as_ref())),
            ("acknowledged", or_dash(row.acknowledged_at)),
            ("  by", or_dash(row.acknowledged_by.as_ref())),
        ] {
            output.line(&format!("{name:<13} {}", escaped(&value)))?;
        }
        output.flush()
    }
}
