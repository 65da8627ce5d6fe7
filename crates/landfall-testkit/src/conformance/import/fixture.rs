//! What an adapter supplies: a new database, a way to run SQL in it, and its SQL dialect.

use landfall_core::{Database, ImportSource, Leases, OutboxQueue, Schema};

pub(super) type Connection<F> = <<F as ImportFixture>::Database as Database>::Connection;

/// A new, empty database for one case. Methods panic if a statement fails.
pub trait ImportFixture: Sized + Send + Sync + 'static {
    type Database: Database + ImportSource + Leases + OutboxQueue + Schema;

    const DIALECT: Dialect;

    /// Creates a database. Returns `None` without a server, after calling [`not_run`](crate::not_run()).
    fn create() -> impl Future<Output = Option<Self>> + Send;

    /// Opens the database without migrating it. Each call represents another process.
    fn open(&self) -> impl Future<Output = Self::Database> + Send;

    fn execute(&self, connection: &mut Connection<Self>, statement: &str) -> impl Future<Output = ()> + Send;

    /// Makes the server close all other connections to this database, if it can.
    fn kill_connections(&self) -> impl Future<Output = ()> + Send;

    /// Returns the single number that `query` selects.
    fn count(&self, connection: &mut Connection<Self>, query: &str) -> impl Future<Output = i64> + Send;
}

/// The SQL of a database, as far as the cases need it.
#[derive(Debug, Clone, Copy)]
pub struct Dialect {
    /// Two transactions can write at the same time.
    pub concurrent_writers: bool,
    /// Whether the database itself records the order of rows of sequential transactions, without a column for it.
    pub has_implicit_order: bool,
    /// `CREATE TABLE outbox` as Debezium documents it, in this database's types.
    pub debezium: &'static str,
    /// The type of an auto-increment column, with its constraints.
    pub auto_increment: &'static str,
    /// A type for UUIDs.
    pub uuid: &'static str,
    /// A type for text of up to 255 characters.
    pub text: &'static str,
    /// Payload types: type, literal and the expected bytes.
    pub payloads: &'static [(&'static str, &'static str, &'static [u8])],
    /// Id types: type, literal and the expected UUID; `None` if the import derives one.
    pub ids: &'static [(&'static str, &'static str, Option<&'static str>)],
    /// Types of columns that can mark a row as imported.
    pub marks: &'static [&'static str],
    /// A type that is not allowed for a payload, if there is one.
    pub no_payload: Option<&'static str>,
}
