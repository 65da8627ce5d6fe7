//! Transactions that the caller's own statements share.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use landfall_core::{ConnectionEpoch, Database, DetachOnDrop, Result};
use sqlx::{PgConnection, Transaction};
use tokio::time::timeout;

use crate::Postgres;

/// Brings to its end what a caller has left, on a pool whose connections are looked at before they are used. If nobody answers
/// that either, nothing that is open now is used again: a transaction may begin in it yet.
async fn finish(mut rest: Pin<Box<impl Future>>, trust: Option<Arc<ConnectionEpoch>>) {
    match trust {
        Some(trust) if timeout(ANSWER_WITHIN, rest.as_mut()).await.is_err() => trust.lose_all(),
        Some(_) => {}
        None => drop(rest.await),
    }
}

/// How long a server may take to begin or to end a transaction. One that is silent for longer may be gone without anybody
/// having heard it hang up, and is treated as if it had.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(60);

pub(crate) async fn answered<T>(statement: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    let late = || std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer within a minute");
    timeout(ANSWER_WITHIN, statement).await.unwrap_or_else(|_| Err(sqlx::Error::Io(late())))
}

impl Database for Postgres {
    type Connection = PgConnection;
    type Transaction = Transaction<'static, sqlx::Postgres>;

    /// The isolation level is named because the inbox relies on it: after waiting for a lock it looks again, and must
    /// see what was committed meanwhile, whatever the server's default is.
    async fn begin(&self) -> Result<Self::Transaction> {
        // Naming the level sets a variable for the transaction, which is work to set and to reset.
        match answered(self.reads_committed()).await.map_err(self.could_not("begin a transaction"))? {
            true => self.begin_with("BEGIN").await,
            false => self.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED").await,
        }
    }

    /// PostgreSQL answers a `COMMIT` of a transaction in which a statement failed with a cheerful `ROLLBACK`, and the
    /// driver does not tell the two apart: a handler that swallowed an SQL error would lose its message. The statement
    /// before it fails in such a transaction, in the same round trip. `AND CHAIN` leaves an empty transaction behind
    /// for the driver, which still believes in one and rolls it back when the connection goes to the pool.
    async fn commit(&self, mut transaction: Self::Transaction) -> Result<()> {
        let committed = answered(sqlx::raw_sql("SELECT 1; COMMIT AND CHAIN").execute(&mut *transaction)).await;
        committed.map(drop).map_err(self.could_not_commit())
    }

    /// Nobody sees a commit before its record is on the disk, unless `synchronous_commit` is off, of which the doctor warns.
    async fn flush(&self, _: Self::Transaction) -> Result<()> {
        Ok(())
    }
}

impl Postgres {
    /// Nobody can cut it off. The driver counts a transaction only once `BEGIN` was answered: of a caller that is dropped
    /// before that (a request whose client left) the pool would get a connection back with a transaction open in it that
    /// nobody ends, and whatever ran on it next would never be committed. So the rest goes on in a task, and a
    /// transaction that nobody takes from it is rolled back.
    pub(crate) async fn begin_unbroken(
        &self,
        begin: &'static str,
    ) -> sqlx::Result<Transaction<'static, sqlx::Postgres>> {
        let pool = self.pool().clone();
        let begun = DetachOnDrop::new(async move { pool.begin_with(begin).await }, |rest| {
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(finish(rest, self.inner.trust.clone()));
            }
        });
        answered(begun).await
    }

    pub(crate) async fn begin_with(&self, begin: &'static str) -> Result<Transaction<'static, sqlx::Postgres>> {
        self.begin_unbroken(begin).await.map_err(self.could_not("begin a transaction"))
    }
}
