//! Transactions, which the caller's own statements share.

use landfall_core::{Database, Result};
use landfall_sql_toolkit::{begin_detached, within_deadline};
use sqlx::{PgConnection, Transaction};

use crate::Postgres;

impl Database for Postgres {
    type Connection = PgConnection;
    type Transaction = Transaction<'static, sqlx::Postgres>;

    /// Always READ COMMITTED, whatever the server's default is: after waiting for a lock, the inbox reads again and
    /// must see what was committed meanwhile.
    async fn begin(&self) -> Result<Self::Transaction> {
        // Naming the level sets a variable for the transaction, which costs time to set and to reset.
        match within_deadline(self.reads_committed()).await.map_err(self.could_not("begin a transaction"))? {
            true => self.begin_with("BEGIN").await,
            false => self.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED").await,
        }
    }

    /// PostgreSQL answers the `COMMIT` of a transaction with a failed statement by `ROLLBACK`, without an error. The
    /// driver does not distinguish the two: a handler that ignored an SQL error would lose its message. The `SELECT`
    /// in front fails in such a transaction, in the same round trip. `AND CHAIN` leaves an empty transaction for the
    /// driver, which still counts one and rolls it back when the connection returns to the pool.
    async fn commit(&self, mut transaction: Self::Transaction) -> Result<()> {
        let committed = within_deadline(sqlx::raw_sql("SELECT 1; COMMIT AND CHAIN").execute(&mut *transaction)).await;
        committed.map(drop).map_err(self.could_not_commit())
    }

    /// Checks deferred constraints, and fails in a transaction with a failed statement.
    async fn check_commit(&self, connection: &mut PgConnection) -> Result<()> {
        let checked = within_deadline(sqlx::raw_sql("SET CONSTRAINTS ALL IMMEDIATE").execute(connection)).await;
        checked.map(drop).map_err(self.could_not("check the transaction"))
    }

    /// Does nothing: a commit becomes visible only after it was flushed to disk. `synchronous_commit = off` breaks
    /// this, and the doctor reports it.
    async fn flush(&self, _: Self::Transaction) -> Result<()> {
        Ok(())
    }
}

impl Postgres {
    /// Begins a transaction; cancellation-safe.
    pub(crate) async fn try_begin(&self, begin: &'static str) -> sqlx::Result<Transaction<'static, sqlx::Postgres>> {
        begin_detached(self.pool(), begin, self.inner.server.epoch()).await
    }

    pub(crate) async fn begin_with(&self, begin: &'static str) -> Result<Transaction<'static, sqlx::Postgres>> {
        self.try_begin(begin).await.map_err(self.could_not("begin a transaction"))
    }
}
