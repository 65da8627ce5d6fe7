//! Transactions: one writer at a time, in order of arrival.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_core::{Database, Error, ErrorKind, Result};
use sqlx::{Connection, SqliteConnection};
use tokio::sync::OwnedSemaphorePermit;

use crate::Sqlite;
use crate::error::{is_busy, translate_commit};
use crate::open::WRITE_LOCK_TIMEOUT;

/// Between two tries to get the write lock while another process has it: a transaction of it takes about that long.
const WRITE_LOCK_PAUSE: Duration = Duration::from_millis(1);

/// A write transaction (`BEGIN IMMEDIATE`); dereferences to the connection, and rolls back when it is dropped.
///
/// It holds the write lock from the beginning, so nothing in it can fail because somebody else wrote in between. A
/// task must not begin a second one while it holds the first: it would wait for itself, until the lock's timeout.
pub struct Transaction {
    // The order matters: a rollback is on its way before the next writer is let in.
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
            Err(_) => return Err(self.write_lock_is_taken()),
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
            // Another process is writing; or the connection is on its way back to the pool.
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

    /// The log is synced before its index names the commit, and nobody sees it before that.
    async fn flush(&self, _: Transaction) -> Result<()> {
        Ok(())
    }
}

impl Sqlite {
    /// When the disk is full or fails, SQLite rolls a transaction back by itself. The driver then fails to roll it back
    /// once more, believes in it for ever, and could never begin another one on that connection.
    fn discard_stuck_connections(&self) {
        // Kept until the end of the loop, or the pool would hand out the same one again.
        let mut looked_at = Vec::new();
        while let Some(mut connection) = self.inner.writer.try_acquire() {
            if connection.is_in_transaction() {
                connection.close_on_drop();
            }
            looked_at.push(connection);
        }
    }

    fn write_lock_is_taken(&self) -> Error {
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
