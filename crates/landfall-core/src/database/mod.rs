//! The ports of a database: outbox, inbox, leases, dead letters, half messages, sequences and import.

pub(crate) mod admission;
pub(crate) mod archived_letter;
pub(crate) mod audit;
pub(crate) mod connection_epoch;
pub(crate) mod dead_letter;
pub(crate) mod delivery;
pub(crate) mod detach_on_drop;
pub(crate) mod half_message;
pub(crate) mod housekeeping;
pub(crate) mod idempotent_append;
pub(crate) mod import;
pub(crate) mod inbox;
pub(crate) mod key_rule;
pub(crate) mod lease;
pub(crate) mod letter_group;
pub(crate) mod outbox;
pub(crate) mod payload_path;
pub(crate) mod rehearsal;
pub(crate) mod retention;
pub(crate) mod sequence;

use std::ops::DerefMut;

use async_trait::async_trait;

use crate::Result;

/// A database whose transactions the caller can share; the base of the generic ports.
pub trait Database: Clone + Send + Sync + 'static {
    /// What the caller's statements run on, such as `sqlx::PgConnection`.
    type Connection: Send;
    /// Rolls back when dropped without a commit.
    type Transaction: DerefMut<Target = Self::Connection> + Send + 'static;

    fn begin(&self) -> impl Future<Output = Result<Self::Transaction>> + Send;

    /// Commits. Kind `Unknown` means that the connection was lost during the commit, which may have happened. Any other
    /// error means that it did not.
    fn commit(&self, transaction: Self::Transaction) -> impl Future<Output = Result<()>> + Send;

    /// Fails with kind `Conflict` or `Invalid` if a commit would fail now, such as after an SQL error that the caller
    /// ignored, and commits nothing. For a transaction that is rolled back after it.
    fn check_commit(&self, _connection: &mut Self::Connection) -> impl Future<Output = Result<()>> + Send {
        std::future::ready(Ok(()))
    }

    /// Commits a transaction that may have changed nothing. When this returns, everything it has read survives a crash
    /// of the server, as with [`Database::flush`].
    fn commit_seen(&self, transaction: Self::Transaction) -> impl Future<Output = Result<()>> + Send {
        self.commit(transaction)
    }

    /// Rolls back, and returns when everything that the transaction has read survives a crash of the server. An error
    /// means that this is unknown. A caller that acts outside the database on what it has read, without committing a
    /// change, must end its transaction with this.
    ///
    /// Most databases make a commit visible once it is on disk, so there is nothing to wait for. InnoDB makes it
    /// visible earlier.
    fn flush(&self, transaction: Self::Transaction) -> impl Future<Output = Result<()>> + Send;
}

/// A database that reports which constraint a statement violated.
pub trait Constraints: Database {
    /// Returns whether `error`, of the driver behind [`Database::Connection`], reports a violation of the unique
    /// constraint with this name. Any other error returns `false`.
    fn is_violation_of(error: &(dyn std::error::Error + 'static), constraint: &str) -> bool;
}

/// What a database adapter supports; selects the cases of the conformance suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatabaseCapabilities {
    /// Two transactions can write concurrently, so late commits and blocked inserts exist.
    pub concurrent_writers: bool,
    /// `OutboxQueue::wait` returns early for a commit in another process.
    pub wakes_across_processes: bool,
    /// [`CompetingQueue`](crate::CompetingQueue) is supported.
    pub competing_relays: bool,
}

/// Creation and migration of the tables.
#[async_trait]
pub trait Schema: Send + Sync {
    /// Returns the statements that create the tables of this build's version, ready for `psql` or `sqlite3`.
    fn ddl(&self) -> String;

    async fn state(&self) -> Result<SchemaState>;

    /// Migrates the tables to this build's version in one transaction; concurrent calls are safe. Returns whether
    /// anything changed. A newer version than this build's is refused (kind `Schema`) and left alone.
    async fn migrate(&self) -> Result<bool>;

    /// Fails with kind `Schema`, and says what to do, unless the tables have exactly this build's version.
    async fn check(&self) -> Result<()>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaState {
    /// The version found; 0 if there are no tables.
    pub found: i64,
    /// The version this build works with.
    pub expected: i64,
}

impl SchemaState {
    /// Refuses tables of a newer build; shared by `Schema::check` and `Schema::migrate`.
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
