//! The peers on a database: the same work in plain SQL, over the same connection pool.
//!
//! The peers promise less: no lease, no epoch, no failing head that holds back its key, no parking. They are the
//! minimum a hand-written outbox needs, and so the upper bound for Landfall.

mod mysql;
mod postgres;
mod sqlite;

use landfall::{Inbox, Leases, Message, OutboxQueue, OutboxWriter};

use crate::Result;

/// Rows claimed, deleted or selected at a time; the relay's own default.
pub(crate) const BATCH: u64 = 500;
/// Connections of a pool: one for each concurrent handler, and some for background work.
const CONNECTIONS: u32 = 20;

/// A database with Landfall's tables and a table `effects`, plus the same operations in plain SQL.
pub(crate) trait Bare: OutboxWriter + Inbox + OutboxQueue + Leases {
    const NAME: &'static str;
    /// The numbers of clients that insert into the outbox at the same time.
    const CLIENTS: &'static [usize];

    /// Connects, and creates Landfall's tables and `effects`.
    fn open(url: &str) -> impl Future<Output = Result<Self>> + Send;

    fn version(&self) -> impl Future<Output = Result<String>> + Send;

    /// Inserts one message into the outbox in its own transaction, into the columns that Landfall writes.
    fn insert(&self, message: &Message) -> impl Future<Output = Result<()>> + Send;

    /// Inserts `rows` rows into the outbox in bulk. Then runs the maintenance a database does on a quiet table
    /// (vacuum, statistics), so that it does not run during a measurement.
    fn fill(&self, rows: u64) -> impl Future<Output = Result<()>> + Send;

    /// Fills the table that the peers use, where that is not Landfall's own.
    fn fill_peers(&self, rows: u64) -> impl Future<Output = Result<()>> + Send {
        self.fill(rows)
    }

    /// Claims and deletes up to [`BATCH`] rows of the outbox, oldest first. Returns their number.
    fn claim_and_delete(&self) -> impl Future<Output = Result<u64>> + Send;

    /// Reads up to [`BATCH`] rows of the outbox, oldest first. Returns their number.
    fn select(&self) -> impl Future<Output = Result<u64>> + Send;

    /// Inserts the inbox row and the effect in one transaction, with the statements that Landfall uses.
    fn handle(&self, message: &Message) -> impl Future<Output = Result<()>> + Send;

    /// Inserts the effect alone: the work of Landfall's handler inside the inbox transaction.
    fn apply<'a>(
        connection: &'a mut Self::Connection,
        message: &'a Message,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send + 'a;

    fn count(&self, table: Table) -> impl Future<Output = Result<u64>> + Send;

    /// Counts the rows of the table that the peers use.
    fn count_peers(&self) -> impl Future<Output = Result<u64>> + Send {
        self.count(Table::Outbox)
    }

    /// Empties the outbox, the inbox and the effects.
    fn clear(&self) -> impl Future<Output = Result<()>> + Send;
}

/// The tables whose rows are counted after each sample.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Table {
    Outbox,
    Inbox,
    Effects,
}

impl Table {
    fn count(self) -> &'static str {
        match self {
            Table::Outbox => "SELECT count(*) FROM landfall_outbox",
            Table::Inbox => "SELECT count(*) FROM landfall_inbox",
            Table::Effects => "SELECT count(*) FROM effects",
        }
    }
}
