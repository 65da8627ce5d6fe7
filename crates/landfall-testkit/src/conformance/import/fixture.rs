//! What an adapter supplies to be tested: a database, a way to run SQL in it, and how it spells things.

use landfall_core::{Database, ImportSource, Leases, OutboxQueue, Schema};

pub(super) type Connection<F> = <<F as ImportFixture>::Database as Database>::Connection;

/// One new, empty database for one case. Its methods panic where a statement fails.
pub trait ImportFixture: Sized + Send + Sync + 'static {
    type Database: Database + ImportSource + Leases + OutboxQueue + Schema;

    const DIALECT: Dialect;

    /// `None` if there is no server, after saying so with [`not_run`](crate::not_run).
    fn create() -> impl Future<Output = Option<Self>> + Send;

    /// Opens the database without migrating it; each call stands for another process.
    fn open(&self) -> impl Future<Output = Self::Database> + Send;

    fn execute(&self, connection: &mut Connection<Self>, statement: &str) -> impl Future<Output = ()> + Send;

    /// Has the server end every connection to this database but the one it is asked on, if it is one that can.
    fn kill_connections(&self) -> impl Future<Output = ()> + Send;

    /// The one number that `query` answers with.
    fn count(&self, connection: &mut Connection<Self>, query: &str) -> impl Future<Output = i64> + Send;
}

/// How a database spells what the cases need.
#[derive(Debug, Clone, Copy)]
pub struct Dialect {
    /// Two transactions can write at the same time.
    pub concurrent_writers: bool,
    /// Whether rows of sequential transactions are told apart without any column for it.
    pub orders_by_itself: bool,
    /// `CREATE TABLE outbox` as Debezium documents it, in this database's types.
    pub debezium: &'static str,
    /// The type of a column that counts up by itself, with what makes it unique.
    pub counting: &'static str,
    /// A type for UUIDs, and one for text of up to 255 characters.
    pub uuid: &'static str,
    pub text: &'static str,
    /// Type, literal, and the bytes that must arrive.
    pub payloads: &'static [(&'static str, &'static str, &'static [u8])],
    /// Type, literal, and the UUID that must arrive; `None` where one has to be made.
    pub ids: &'static [(&'static str, &'static str, Option<&'static str>)],
    /// Types of columns that can be marked.
    pub marks: &'static [&'static str],
    /// A type that cannot be a payload, if there is one.
    pub no_payload: Option<&'static str>,
}
