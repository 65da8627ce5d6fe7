//! Transactions that the caller's own statements share.

use landfall_core::{Database, Result};
use sqlx::{PgConnection, Transaction};

use crate::{Postgres, error};

impl Database for Postgres {
    type Connection = PgConnection;
    type Transaction = Transaction<'static, sqlx::Postgres>;

    /// The isolation level is named because the inbox relies on it: after waiting for a lock it looks again, and must
    /// see what was committed meanwhile, whatever the server's default is.
    async fn begin(&self) -> Result<Self::Transaction> {
        let begin = "BEGIN ISOLATION LEVEL READ COMMITTED";
        self.pool().begin_with(begin).await.map_err(self.could_not("begin a transaction"))
    }

    /// PostgreSQL answers a `COMMIT` of a transaction in which a statement failed with a cheerful `ROLLBACK`, and the
    /// driver does not tell the two apart: a handler that swallowed an SQL error would lose its message. The statement
    /// before it fails in such a transaction, in the same round trip. `AND CHAIN` leaves an empty transaction behind
    /// for the driver, which still believes in one and rolls it back when the connection goes to the pool.
    async fn commit(&self, mut transaction: Self::Transaction) -> Result<()> {
        sqlx::raw_sql("SELECT 1; COMMIT AND CHAIN")
            .execute(&mut *transaction)
            .await
            .map_err(|error| error::translate_commit(&self.inner.place, error))?;
        Ok(())
    }
}
