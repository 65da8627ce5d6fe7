//! Statements that are equal on every server but for a few words.
//!
//! A template has `?` for values and words in braces: `{p}` is the validated table prefix, the others come from the
//! [`Dialect`]. Values are always bound.

mod dialect;
mod filter;
mod value;

pub use dialect::{Around, Dialect};
pub use filter::letters;
pub use value::{Cells, Column, Value, bind_values, cells};

use landfall_core::{DeadLetterId, Error, OutboxWriter, Redriven, Result, TablePrefix};

/// A statement with its values.
#[derive(Debug, Clone)]
pub struct Statement {
    pub text: String,
    pub values: Vec<Value>,
    /// The columns of its rows.
    pub columns: &'static [Column],
    /// Completes "could not …".
    pub doing: &'static str,
}

/// A database that runs portable statements on dead letters, redrive jobs and the audit trail.
pub trait LetterTables: OutboxWriter {
    fn dialect(&self) -> &'static Dialect;

    fn table_prefix(&self) -> &TablePrefix;

    /// Runs a statement and returns how many rows it changed.
    fn execute(
        &self,
        connection: &mut Self::Connection,
        statement: Statement,
    ) -> impl Future<Output = Result<u64>> + Send;

    fn fetch(
        &self,
        connection: &mut Self::Connection,
        statement: Statement,
    ) -> impl Future<Output = Result<Vec<Cells>>> + Send;

    /// Reads outside a transaction.
    fn read(&self, statement: Statement) -> impl Future<Output = Result<Vec<Cells>>> + Send;

    /// Redrives those of `ids` that are parked, in the caller's transaction. Returns which, in order. `detail` is what
    /// the audit trail says about each.
    fn redrive_in(
        &self,
        connection: &mut Self::Connection,
        ids: &[DeadLetterId],
        actor: &str,
        detail: &str,
    ) -> impl Future<Output = Result<Redriven>> + Send;

    /// Whether the server rolled a transaction back because of a deadlock, so that it may run again.
    fn is_rolled_back(&self, _error: &Error) -> bool {
        false
    }

    /// Builds a statement from a template.
    fn statement(&self, doing: &'static str, template: &str, values: Vec<Value>) -> Statement {
        self.query(doing, template, values, &[])
    }

    /// Builds a statement that returns rows.
    fn query(&self, doing: &'static str, template: &str, values: Vec<Value>, columns: &'static [Column]) -> Statement {
        Statement { text: self.dialect().fill(template, self.table_prefix()), values, columns, doing }
    }
}

/// Returns `count` placeholders, for a list.
pub(crate) fn placeholders(count: usize) -> String {
    vec!["?"; count].join(", ")
}
