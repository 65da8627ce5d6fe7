use std::ops::DerefMut;

use async_trait::async_trait;

use crate::Result;

/// A database whose transactions can be shared with the caller: what the generic ports are built on.
pub trait Database: Clone + Send + Sync + 'static {
    /// What the caller's own code runs its statements on, such as `sqlx::PgConnection`.
    type Connection: Send;
    /// Rolls back when dropped without a commit.
    type Transaction: DerefMut<Target = Self::Connection> + Send + 'static;

    fn begin(&self) -> impl Future<Output = Result<Self::Transaction>> + Send;

    /// Commits. An error of kind `Unknown` means that the connection was lost under the commit: it may have
    /// happened. Any other error means that it did not.
    fn commit(&self, transaction: Self::Transaction) -> impl Future<Output = Result<()>> + Send;

    /// As [`Database::commit`], for a transaction that may have changed nothing: when this returns, what it has seen survives
    /// a crash of the server as well, as with [`Database::flush`].
    fn commit_seen(&self, transaction: Self::Transaction) -> impl Future<Output = Result<()>> + Send {
        self.commit(transaction)
    }

    /// Rolls back, and returns when everything that the transaction has seen survives a crash of the server; an error says
    /// that nobody knows. Whoever acts outside of the database on what it has read there, without a commit that changes
    /// something, ends its transaction with this.
    ///
    /// Most databases show a commit when it is on the disk, and there is nothing to wait for. InnoDB shows it earlier.
    fn flush(&self, transaction: Self::Transaction) -> impl Future<Output = Result<()>> + Send;
}

/// A database that says which constraint a statement of the caller violated.
pub trait Constraints: Database {
    /// Whether `error`, of the driver that [`Database::Connection`] belongs to, says that the unique constraint of this
    /// name was violated. Anything else, another constraint included, is `false`.
    fn is_violation_of(error: &(dyn std::error::Error + 'static), constraint: &str) -> bool;
}

/// What a database adapter can do; the conformance suites pick their tests by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatabaseCapabilities {
    /// Two transactions can write at the same time (so late commits and blocked inserts exist).
    pub concurrent_writers: bool,
    /// `OutboxQueue::wait` returns early for a commit in another process.
    pub wakes_across_processes: bool,
    /// [`CompetingQueue`](crate::CompetingQueue) works.
    pub competing_relays: bool,
}

/// The tables, and how they come to be.
#[async_trait]
pub trait Schema: Send + Sync {
    /// The statements that make the tables of this build's version from nothing, ready for `psql` or `sqlite3`.
    fn ddl(&self) -> String;

    async fn state(&self) -> Result<SchemaState>;

    /// Brings the tables to this build's version, in one transaction; several at once are safe. Answers whether
    /// anything changed. A newer version than this build's is refused (kind `Schema`) and left alone.
    async fn migrate(&self) -> Result<bool>;

    /// Fails with kind `Schema` and a sentence that says what to do unless the tables are exactly this build's.
    async fn check(&self) -> Result<()>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaState {
    /// The version found; 0 where there are no tables.
    pub found: i64,
    /// The version this build works with.
    pub expected: i64,
}

impl SchemaState {
    /// The shared sentences of `Schema::check` and `Schema::migrate`.
    pub fn refuse_newer(self) -> Result<()> {
        let SchemaState { found, expected } = self;
        if found > expected {
            return Err(crate::Error::new(
                crate::ErrorKind::Schema,
                format!("the tables are at version {found} and this build knows {expected}; use a newer landfall"),
            ));
        }
        Ok(())
    }

    pub fn require_current(self) -> Result<()> {
        self.refuse_newer()?;
        let SchemaState { found, expected } = self;
        if found < expected {
            let what = if found == 0 { "has no landfall tables".into() } else { format!("is at version {found}") };
            return Err(crate::Error::new(
                crate::ErrorKind::Schema,
                format!("the database {what} and this build needs version {expected}; run `landfall migrate`"),
            ));
        }
        Ok(())
    }
}
