//! Import from existing outbox tables: a mapping assigns their columns, and an importer moves their rows into
//! Landfall's outbox. From there, order, retries, parking and views are the same as for any other message.
//!
//! There is no cursor. A row is removed and enqueued in one transaction: a row that commits late is moved late, and a
//! crash leaves it in place.

mod identifier;
mod mapping;
mod row;
mod template;

use async_trait::async_trait;

pub use identifier::{ColumnName, TableName};
pub use mapping::{HeaderColumn, Mapping, Taken};
pub use row::{ForeignRow, ImportedRow};
pub use template::TopicTemplate;

use crate::Result;
use crate::adapter::Lease;

/// A database that can import rows from a table of the user.
#[async_trait]
pub trait ImportSource: Send + Sync {
    /// Checks `mapping` against the live table and prepares the import. Changes nothing.
    ///
    /// Refuses a missing table or column, an unsuitable type and a missing privilege, each by name.
    async fn prepare_import(&self, mapping: Mapping) -> Result<Box<dyn Import>>;
}

/// An import with a valid mapping.
#[async_trait]
pub trait Import: Send + Sync {
    fn order(&self) -> &ImportOrder;

    /// Moves at most `limit` rows, in order, into the outbox in one transaction, if `lease` is held under its epoch.
    /// Otherwise nothing happens and the result is zero.
    ///
    /// An invalid row is enqueued as one that the relay parks, with the reason and with its columns as payload. Moved
    /// rows are deleted or marked, as the mapping says.
    async fn import(&self, lease: &Lease, limit: usize) -> Result<Imported>;
}

/// How the insertion order of a table's rows is determined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportOrder {
    /// Exactly: by these columns, or by the database itself.
    Known(String),
    /// Approximately: messages of one key that are present together may be reordered. The text says how, and what to
    /// do.
    Guessed(String),
}

/// The result of one [`Import::import`] call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Imported {
    /// Rows moved into the outbox.
    pub moved: usize,
    /// Invalid rows among them, which the relay will park.
    pub refused: usize,
}
