//! Transactions that the caller's own statements share.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use landfall_core::{ConnectionEpoch, Database, DetachOnDrop, Result};
use sqlx::MySqlConnection;
use tokio::time::timeout;

use crate::MySql;
use crate::retry::once_more;

/// The isolation level is named because the ports rely on it: after waiting for a lock they look again, and must see
/// what was committed meanwhile; and because the gaps that the default locks would make writers wait for relays.
///
/// The savepoint stands for the transaction's life: see [`MySql::commit`].
const BEGIN: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION; SAVEPOINT landfall_transaction";

/// Fails at its first statement, and then commits nothing, if the transaction is no longer the one that was begun.
const COMMIT: &str = "RELEASE SAVEPOINT landfall_transaction; COMMIT";

/// Fails if the transaction is no longer the one that was begun, and changes nothing.
pub(crate) const IS_STILL_OPEN: &str = "RELEASE SAVEPOINT landfall_transaction; SAVEPOINT landfall_transaction";

/// Undoes everything since the beginning and goes on; locks stay as they are.
pub(crate) const TAKE_BACK: &str = "ROLLBACK TO SAVEPOINT landfall_transaction";

/// One row would do for one server. Nodes of a cluster that change the same one at the same time get in each other's way.
const FLUSH_SLOTS: i8 = 64;

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
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

async fn answered<T>(statement: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    let late = || std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer within a minute");
    timeout(ANSWER_WITHIN, statement).await.unwrap_or_else(|_| Err(sqlx::Error::Io(late())))
}

/// A transaction; dereferences to the connection, and rolls back when it is dropped.
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
        // Nobody can cut it off. The driver counts a transaction only once it was answered: of a caller that is dropped
        // before that the pool would get a connection back with a transaction open in it that nobody ends, and whatever
        // ran on it next would never be committed. So the rest goes on in a task, and a transaction that nobody takes
        // from it is rolled back.
        let pool = self.pool().clone();
        let begun = DetachOnDrop::new(async move { pool.begin_with(BEGIN).await }, |rest| {
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(finish(rest, self.inner.trust.clone()));
            }
        });
        answered(begun).await.map(Transaction).map_err(self.could_not("begin a transaction"))
    }

    /// A deadlock rolls the whole transaction back, and a `CREATE TABLE` commits it half-way; what the connection does
    /// afterwards commits by itself, statement by statement, and a `COMMIT` at the end is content with that. A handler
    /// that swallowed the deadlock's error would have its effect without its inbox row. Either way the savepoint is
    /// gone, and the commit fails.
    async fn commit(&self, mut transaction: Transaction) -> Result<()> {
        self.commit_on(&mut transaction).await
    }

    /// A commit that changes nothing waits for nobody's log.
    async fn commit_seen(&self, mut transaction: Transaction) -> Result<()> {
        self.commit_on(&mut transaction).await?;
        self.flush_on(&mut transaction).await
    }

    async fn flush(&self, mut transaction: Transaction) -> Result<()> {
        let doing = "roll a transaction back";
        answered(sqlx::raw_sql("ROLLBACK").execute(&mut *transaction)).await.map_err(self.could_not(doing))?;
        self.flush_on(&mut transaction).await
    }
}

impl MySql {
    /// The driver believes in a transaction still, and rolls nothing back when the connection goes to the pool.
    async fn commit_on(&self, transaction: &mut Transaction) -> Result<()> {
        let committed = answered(sqlx::raw_sql(COMMIT).execute(&mut **transaction)).await;
        committed.map_err(self.could_not_commit())?;
        Ok(())
    }

    /// Returns when everything that `connection` has seen is on the disk. It is in no transaction.
    ///
    /// InnoDB lets go of a transaction's locks and shows its rows before its log is written: what was read a moment ago is
    /// gone if the server is killed now. The log is one line, so a commit that is answered proves everything before it; on
    /// the connection that has read, since another one may be answered by the server that came after the crash.
    pub(crate) async fn flush_on(&self, connection: &mut MySqlConnection) -> Result<()> {
        let mut tries = 0;
        loop {
            let change = sqlx::query(self.statements().flush.text()).bind(rand::random_range(0..FLUSH_SLOTS));
            match answered(change.execute(&mut *connection)).await.map_err(self.could_not("wait for the log")) {
                Ok(_) => return Ok(()),
                Err(error) => once_more(error, &mut tries).await?,
            }
        }
    }
}
