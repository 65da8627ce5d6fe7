//! `landfall dlq audit` and `landfall dlq history`: which person or part of the system changed what.

use clap::Args;
use landfall::{AuditEntry, AuditFilter, AuditTrail, DeadLetterId, MessageId, Timestamp};

use crate::audit_csv::{self, COLUMNS, cells};
use crate::error::Result;
use crate::output::Output;

/// Rows that are read together.
const PAGE: usize = 1000;

/// Print the audit trail, the oldest row first, all of it unless filters or --limit say otherwise.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall dlq audit --actor maria --from 2026-11-01T00:00:00Z
  landfall dlq audit --csv > audit.csv")]
pub(super) struct Audit {
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
    /// Print CSV with a line of column names. A spreadsheet evaluates nothing of it.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Maximum number of rows.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Only this dead letter.
    #[arg(long, value_name = "ID")]
    dead_letter: Option<DeadLetterId>,
    /// Only this message or redrive.
    #[arg(long, value_name = "UUID")]
    message_id: Option<MessageId>,
    /// Only this actor.
    #[arg(long)]
    actor: Option<String>,
    /// Only this action, such as redrive or discard.
    #[arg(long)]
    action: Option<String>,
    /// At or after this time (2026-11-15T08:00:00Z).
    #[arg(long, value_name = "TIME")]
    from: Option<Timestamp>,
    /// Before this time.
    #[arg(long, value_name = "TIME")]
    to: Option<Timestamp>,
}

/// Print everything that happened to a dead letter.
#[derive(Debug, Args)]
pub(super) struct History {
    /// Id of the dead letter.
    id: DeadLetterId,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

impl Audit {
    pub(super) async fn run(self, trail: &dyn AuditTrail) -> Result<()> {
        let Self { dead_letter, message_id, actor, action, from, to, .. } = self;
        let filter = AuditFilter { dead_letter, message_id, actor, action, from, to, after: None };
        let limit = self.limit.map_or(usize::MAX, |limit| limit as usize);
        let rows = read(trail, filter, limit).await?;
        if !self.csv {
            return print(self.json, &rows);
        }
        let mut output = Output::new();
        output.line(audit_csv::heading().trim_end_matches('\n'))?;
        for row in &rows {
            output.line(audit_csv::line(row).trim_end_matches('\n'))?;
        }
        output.flush()
    }
}

impl History {
    pub(super) async fn run(self, trail: &dyn AuditTrail) -> Result<()> {
        let filter = AuditFilter { dead_letter: Some(self.id), ..AuditFilter::default() };
        print(self.json, &read(trail, filter, usize::MAX).await?)
    }
}

async fn read(trail: &dyn AuditTrail, mut filter: AuditFilter, limit: usize) -> Result<Vec<AuditEntry>> {
    let mut rows: Vec<AuditEntry> = Vec::new();
    while rows.len() < limit {
        let page = trail.audit_entries(&filter, PAGE.min(limit - rows.len())).await?;
        let Some(last) = page.last() else { break };
        filter.after = Some(last.id);
        rows.extend(page);
    }
    Ok(rows)
}

fn print(json: bool, rows: &[AuditEntry]) -> Result<()> {
    Output::new().list(json, rows, COLUMNS, cells)
}
