//! What Landfall's peers do on a database: the same work in bare SQL, over the same pool of connections.
//!
//! The peers promise less: no lease and no epoch, no failing head that holds back its key, no parking. They are the
//! least that somebody would write by hand, and so the most that Landfall could reach.

mod mysql;
mod postgres;
mod sqlite;

use landfall::{Inbox, Leases, Message, OutboxQueue, OutboxWriter};

use crate::Result;

/// Rows claimed, deleted or selected at a time; the relay's own default.
pub(crate) const BATCH: u64 = 500;
/// Connections of a pool: one for each concurrent handler, and some for whoever works beside them.
const CONNECTIONS: u32 = 20;

/// A database with Landfall's tables and a table `effects`, and what can be done with them without Landfall.
pub(crate) trait Bare: OutboxWriter + Inbox + OutboxQueue + Leases {
    const NAME: &'static str;
    /// The numbers of clients that insert into the outbox at the same time.
    const CLIENTS: &'static [usize];

    /// Connects, and makes Landfall's tables and `effects`.
    fn open(url: &str) -> impl Future<Output = Result<Self>> + Send;

    fn version(&self) -> impl Future<Output = Result<String>> + Send;

    /// One message into the outbox, in a transaction of its own, into the columns that Landfall writes.
    fn insert(&self, message: &Message) -> impl Future<Output = Result<()>> + Send;

    /// So many rows into the outbox at once, as fast as it goes; then what a database does by itself on a quiet
    /// table (vacuum, statistics), so that nobody is measured while it does.
    fn fill(&self, rows: u64) -> impl Future<Output = Result<()>> + Send;

    /// The same into the table that the peers work on, where that is not Landfall's own.
    fn fill_peers(&self, rows: u64) -> impl Future<Output = Result<()>> + Send {
        self.fill(rows)
    }

    /// Takes up to [`BATCH`] rows out of the outbox, oldest first, and answers with how many.
    fn claim_and_delete(&self) -> impl Future<Output = Result<u64>> + Send;

    /// Reads up to [`BATCH`] rows of the outbox, oldest first, and answers with how many.
    fn select(&self) -> impl Future<Output = Result<u64>> + Send;

    /// One message into the inbox and its effect, in one transaction, with the statements that Landfall uses.
    fn handle(&self, message: &Message) -> impl Future<Output = Result<()>> + Send;

    /// The effect alone: what Landfall's handler does inside the inbox transaction.
    fn apply<'a>(
        connection: &'a mut Self::Connection,
        message: &'a Message,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send + 'a;

    fn count(&self, table: Table) -> impl Future<Output = Result<u64>> + Send;

    /// The rows of the table that the peers work on.
    fn count_peers(&self) -> impl Future<Output = Result<u64>> + Send {
        self.count(Table::Outbox)
    }

    /// Empties the outbox, the inbox and the effects.
    fn clear(&self) -> impl Future<Output = Result<()>> + Send;
}

/// The tables whose rows are counted after a turn.
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
