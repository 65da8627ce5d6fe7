//! Transactions: one writer at a time, in order of arrival.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_core::{Database, Error, ErrorKind, Result};
use sqlx::{Connection, SqliteConnection};
use tokio::sync::OwnedSemaphorePermit;

use crate::Sqlite;
use crate::connection::error::{is_busy, translate_commit};
use crate::connection::open::WRITE_LOCK_TIMEOUT;

/// Pause between two attempts to get the write lock that another process holds: about the length of a transaction.
const WRITE_LOCK_PAUSE: Duration = Duration::from_millis(1);

/// A write transaction (`BEGIN IMMEDIATE`). Dereferences to its connection, and rolls back when dropped.
///
/// It holds the write lock from the beginning, so no statement in it fails because of another writer. A task must not
/// begin a second transaction while it holds one: it would wait for itself until the lock times out.
pub struct Transaction {
    // The order matters: the rollback is queued before the next writer gets the permit.
    transaction: sqlx::Transaction<'static, sqlx::Sqlite>,
    _permit: OwnedSemaphorePermit,
}

impl Deref for Transaction {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.transaction
    }
}

impl DerefMut for Transaction {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.transaction
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").finish_non_exhaustive()
    }
}

impl Database for Sqlite {
    type Connection = SqliteConnection;
    type Transaction = Transaction;

    async fn begin(&self) -> Result<Transaction> {
        let writers = Arc::clone(&self.inner.writers);
        let permit = match tokio::time::timeout(WRITE_LOCK_TIMEOUT, writers.acquire_owned()).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(closed)) => {
                return Err(Error::new(ErrorKind::Internal, "the queue of writers is closed").with_source(closed));
            }
            Err(_) => return Err(self.write_lock_timed_out()),
        };
        let started = Instant::now();
        loop {
            let error = match self.inner.writer.begin_with("BEGIN IMMEDIATE").await {
                Ok(transaction) => return Ok(Transaction { transaction, _permit: permit }),
                Err(error) => error,
            };
            let is_stuck = matches!(error, sqlx::Error::InvalidSavePointStatement);
            if !(is_stuck || is_busy(&error)) || started.elapsed() > WRITE_LOCK_TIMEOUT {
                return Err(self.cannot("begin a transaction")(error));
            }
            // Another process is writing, or the connection is being returned to the pool.
            tokio::time::sleep(WRITE_LOCK_PAUSE).await;
            if is_stuck {
                self.discard_stuck_connections();
            }
        }
    }

    async fn commit(&self, transaction: Transaction) -> Result<()> {
        let Transaction { transaction, _permit } = transaction;
        transaction.commit().await.map_err(|error| translate_commit(&self.inner.name, error))
    }

    /// Does nothing: a commit becomes visible only after the log was synced.
    async fn flush(&self, _: Transaction) -> Result<()> {
        Ok(())
    }
}

impl Sqlite {
    /// Closes idle connections that the driver still counts as in a transaction. When the disk is full or fails, SQLite
    /// rolls a transaction back on its own. The driver then fails to roll it back again, and could never begin another
    /// one on that connection.
    fn discard_stuck_connections(&self) {
        // Kept until the end of the loop, or the pool would hand out the same one again.
        let mut checked = Vec::new();
        while let Some(mut connection) = self.inner.writer.try_acquire() {
            if connection.is_in_transaction() {
                connection.close_on_drop();
            }
            checked.push(connection);
        }
    }

    fn write_lock_timed_out(&self) -> Error {
        let (file, seconds) = (&self.inner.name, WRITE_LOCK_TIMEOUT.as_secs());
        Error::new(
            ErrorKind::Unavailable,
            format!(
                "another transaction of this process has been open in {file} for more than {seconds} s; keep \
                 transactions short, and do not begin a second one while holding the first"
            ),
        )
    }
}
