//! The audit trail: which person or part of the system changed what, when and why.

use async_trait::async_trait;
use serde::Serialize;

use crate::{DeadLetterId, MessageId, Result, Timestamp};

/// One row of the audit trail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditEntry {
    /// Grows with time.
    pub id: i64,
    pub at: Timestamp,
    /// A person, or a part of the system such as `relay` or `consumer:billing`.
    pub actor: String,
    pub action: String,
    pub dead_letter_id: Option<DeadLetterId>,
    /// The message, or the redrive job for the actions `redrive-…`; `None` if the stored id is not readable.
    pub message_id: Option<MessageId>,
    pub detail: String,
}

/// Selects audit rows; every field that is set must match.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    pub dead_letter: Option<DeadLetterId>,
    pub message_id: Option<MessageId>,
    pub actor: Option<String>,
    pub action: Option<String>,
    /// At or after `from`, and before `to`.
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
    /// Only ids above this one: the last id of the previous page.
    pub after: Option<i64>,
}

/// Reads the audit trail. Rows are only ever inserted, in the transaction of the change they record.
#[async_trait]
pub trait AuditTrail: Send + Sync {
    /// Returns at most `limit` matching rows, the oldest first.
    async fn audit_entries(&self, filter: &AuditFilter, limit: usize) -> Result<Vec<AuditEntry>>;
}
