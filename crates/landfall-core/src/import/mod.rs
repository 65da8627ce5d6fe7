//! Outboxes that are already there: a mapping says what their columns mean, and a mover takes their rows into Landfall's
//! own outbox. From there on order, retries, parking and views are the same as for any other message.
//!
//! There is no cursor. A row is taken because it is present, and it is taken and enqueued in one transaction: a row that
//! commits late is moved late, and a crash leaves it where it was.

mod identifier;
mod mapping;
mod row;
mod template;

use async_trait::async_trait;

pub use identifier::{ColumnName, TableName};
pub use mapping::{HeaderColumn, Mapping, Taken};
pub use row::{ForeignRow, ImportedRow};
pub use template::TopicTemplate;

use crate::{Lease, Result};

/// A database that can take rows from a table of the user's own.
#[async_trait]
pub trait ImportSource: Send + Sync {
    /// Compares `mapping` with the live table and gets ready to move its rows.
    ///
    /// A table or a column that is missing or of a type that cannot be what it should be, and rights that are not given,
    /// are refused with a sentence that names them. Changes nothing.
    async fn prepare_import(&self, mapping: Mapping) -> Result<Box<dyn Import>>;
}

/// A table whose mapping fits.
#[async_trait]
pub trait Import: Send + Sync {
    fn order(&self) -> &ImportOrder;

    /// Takes at most `limit` rows that are present, in their order, and puts them into the outbox in the same
    /// transaction, if `lease` is held under its epoch there; if not, nothing happens and the answer says zero.
    ///
    /// A row that cannot be a message is put into the outbox as one that the relay parks, with the reason and with its
    /// columns as the payload. Rows are deleted or marked as the mapping says.
    async fn import(&self, lease: &Lease, limit: usize) -> Result<Imported>;
}

/// What says in which order the rows of a table were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportOrder {
    /// These columns, or what the database itself knows exactly.
    Known(String),
    /// The best the database can tell, which may be wrong for messages of one key that are present together; the
    /// sentence says how, and what to do about it.
    Guessed(String),
}

/// What one call of [`Import::import`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Imported {
    /// Rows that are in the outbox now.
    pub moved: usize,
    /// Those of them that cannot be messages, and will be parked.
    pub refused: usize,
}
