//! Transactions, which the caller's own statements share.

use std::fmt;
use std::ops::{Deref, DerefMut};

use landfall_core::{Database, Result};
use landfall_sql_toolkit::{begin_detached, within_deadline};
use sqlx::MySqlConnection;

use super::retry::back_off;
use crate::MySql;

/// Always READ COMMITTED. After waiting for a lock, the ports read again and must see what was committed meanwhile. And
/// the gap locks of the default level would make writers wait for relays.
///
/// The savepoint marks the transaction: see [`MySql::commit`].
const BEGIN: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION; SAVEPOINT landfall_transaction";

/// Fails at its first statement, and commits nothing, if the transaction that was begun has ended.
const COMMIT: &str = "RELEASE SAVEPOINT landfall_transaction; COMMIT";

/// Fails if the transaction that was begun has ended, and changes nothing.
pub(crate) const CHECK_OPEN: &str = "RELEASE SAVEPOINT landfall_transaction; SAVEPOINT landfall_transaction";

/// Undoes everything since the beginning and keeps the locks.
pub(crate) const UNDO: &str = "ROLLBACK TO SAVEPOINT landfall_transaction";

/// Rows of the table `flush`. One would do for one server, but nodes of a cluster that change the same row at the same
/// time conflict.
const FLUSH_SLOTS: i8 = 64;

/// A transaction. Dereferences to its connection, and rolls back when dropped.
pub struct Transaction(sqlx::Transaction<'static, sqlx::MySql>);

impl Deref for Transaction {
    type Target = MySqlConnection;

    fn deref(&self) -> &MySqlConnection {
        &self.0
    }
}

impl DerefMut for Transaction {
    fn deref_mut(&mut self) -> &mut MySqlConnection {
        &mut self.0
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").finish_non_exhaustive()
    }
}

impl Database for MySql {
    type Connection = MySqlConnection;
    type Transaction = Transaction;

    async fn begin(&self) -> Result<Transaction> {
        let begun = begin_detached(self.pool(), BEGIN, self.inner.server.epoch()).await;
        begun.map(Transaction).map_err(self.could_not("begin a transaction"))
    }

    /// A deadlock rolls the whole transaction back, and a `CREATE TABLE` commits it half-way. Later statements then
    /// commit one by one, and a `COMMIT` succeeds. A handler that ignored the deadlock's error would have its effect
    /// without its inbox row. In both cases the savepoint is gone, and the commit fails.
    async fn commit(&self, mut transaction: Transaction) -> Result<()> {
        self.commit_on(&mut transaction).await
    }

    async fn check_commit(&self, connection: &mut MySqlConnection) -> Result<()> {
        let checked = within_deadline(sqlx::raw_sql(CHECK_OPEN).execute(connection)).await;
        checked.map(drop).map_err(self.could_not_commit())
    }

    /// A commit without changes does not wait for the log, so this flushes it.
    async fn commit_seen(&self, mut transaction: Transaction) -> Result<()> {
        self.commit_on(&mut transaction).await?;
        self.flush_on(&mut transaction).await
    }

    async fn flush(&self, mut transaction: Transaction) -> Result<()> {
        let rolled_back = within_deadline(sqlx::raw_sql("ROLLBACK").execute(&mut *transaction)).await;
        rolled_back.map_err(self.could_not("roll a transaction back"))?;
        self.flush_on(&mut transaction).await
    }
}

impl MySql {
    /// The driver still counts a transaction; rolling it back when the connection returns to the pool does nothing.
    async fn commit_on(&self, transaction: &mut Transaction) -> Result<()> {
        let committed = within_deadline(sqlx::raw_sql(COMMIT).execute(&mut **transaction)).await;
        committed.map(drop).map_err(self.could_not_commit())
    }

    /// Returns once everything that `connection` has read is on disk. The connection must not be in a transaction.
    ///
    /// InnoDB releases a transaction's locks and shows its rows before its log is written: rows just read are lost if
    /// the server is killed now. The log is sequential, so one acknowledged commit proves everything before it. It must
    /// be on the connection that has read: another one may be answered by the server that was started after the crash.
    pub(crate) async fn flush_on(&self, connection: &mut MySqlConnection) -> Result<()> {
        let mut attempts = 0;
        loop {
            let change = sqlx::query(self.statements().flush.text()).bind(rand::random_range(0..FLUSH_SLOTS));
            match within_deadline(change.execute(&mut *connection)).await.map_err(self.could_not("flush the log")) {
                Ok(_) => return Ok(()),
                Err(error) => back_off(error, &mut attempts).await?,
            }
        }
    }
}
