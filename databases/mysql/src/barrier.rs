//! The barrier in the business database. A question does not wait for a local transaction that has inserted the row.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{
    BarrierWriter, Barriers, Database, ErrorKind, HalfState, HalfVerdict, MessageId, Result, Timestamp,
};
use landfall_sql_toolkit::{BARRIER_WAIT, barrier_is_removed, barrier_refused};
use sqlx::MySqlConnection;

use crate::connection::error::is_locked;
use crate::statements::Sql;
use crate::{MySql, Transaction};

const ASK: &str = "ask the barrier";

impl BarrierWriter for MySql {
    async fn enter_barrier(&self, connection: &mut MySqlConnection, id: MessageId) -> Result<()> {
        let entered =
            sqlx::query(self.statements().barrier_enter.text()).bind(id.to_string()).execute(connection).await;
        entered.map(drop).map_err(|error| barrier_refused(id, self.could_not("enter the barrier")(error)))
    }
}

#[async_trait]
impl Barriers for MySql {
    async fn ask_barrier(&self, id: MessageId, prepared_at: Timestamp) -> Result<Option<HalfVerdict>> {
        let mut transaction = self.begin().await?;
        match self.verdict(&mut transaction, &self.statements().barrier_verdict, id).await? {
            Seen::Verdict(found @ Some(_)) => {
                self.flush(transaction).await?;
                return Ok(found);
            }
            Seen::Verdict(None) => {}
            Seen::Locked => return Ok(None),
        }
        // Bounded: a local transaction may insert the row at this moment.
        match tokio::time::timeout(BARRIER_WAIT, self.settle_barrier(transaction, id, prepared_at)).await {
            Ok(Err(error)) if error.kind() == ErrorKind::Invalid => Ok(None),
            Ok(Ok((transaction, verdict))) => {
                self.commit_seen(transaction).await?;
                Ok(verdict)
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Ok(None),
        }
    }

    async fn longest_transaction(&self) -> Result<Option<Duration>> {
        let mut transaction = self.begin().await?;
        let unknown = MessageId::from_bytes([0; 16]);
        self.verdict(&mut transaction, &self.statements().barrier_verdict, unknown).await?;
        // Refused without the privilege PROCESS.
        let seconds: Option<i64> =
            sqlx::query_scalar(LONGEST_TRANSACTION).fetch_one(&mut *transaction).await.unwrap_or_default();
        Ok(seconds.map(|seconds| Duration::from_secs(seconds.unsigned_abs())))
    }
}

/// `trx_started` is in the time zone of the server's process, not of the session.
const LONGEST_TRANSACTION: &str = "
    SELECT CAST(MAX(TIMESTAMPDIFF(SECOND, trx_started, CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', 'SYSTEM'))) AS SIGNED)
    FROM information_schema.innodb_trx WHERE trx_mysql_thread_id <> CONNECTION_ID()";

enum Seen {
    Verdict(Option<HalfVerdict>),
    /// An open transaction has inserted or deleted the row.
    Locked,
}

impl MySql {
    /// Inserts a tombstone unless there is a row, and returns the verdict that the transaction makes final. Rolls back
    /// if there is none.
    async fn settle_barrier(
        &self,
        mut transaction: Transaction,
        id: MessageId,
        prepared_at: Timestamp,
    ) -> Result<(Transaction, Option<HalfVerdict>)> {
        // Does not wait. A missing row locks nothing.
        if let Seen::Locked = self.verdict(&mut transaction, &self.statements().barrier_lock, id).await? {
            return Ok((self.begin_again(transaction).await?, None));
        }
        sqlx::query(self.statements().barrier_tombstone.text())
            .bind(id.to_string())
            .execute(&mut *transaction)
            .await
            .map_err(self.could_not("write a tombstone"))?;
        let Seen::Verdict(verdict) = self.verdict(&mut transaction, &self.statements().barrier_verdict, id).await?
        else {
            return Ok((self.begin_again(transaction).await?, None));
        };
        // After the insert: a row that was removed meanwhile has moved this time.
        let removed: Option<i64> = sqlx::query_scalar(self.statements().barrier_removed.text())
            .fetch_optional(&mut *transaction)
            .await
            .map_err(self.could_not(ASK))?;
        let is_removed = barrier_is_removed(prepared_at, removed.map(Timestamp::from_millis));
        if verdict == Some(HalfVerdict::RolledBack) && is_removed {
            return Ok((self.begin_again(transaction).await?, None));
        }
        Ok((transaction, verdict))
    }

    /// Rolls back, and begins a transaction without changes.
    async fn begin_again(&self, transaction: Transaction) -> Result<Transaction> {
        self.flush(transaction).await?;
        self.begin().await
    }

    async fn verdict(&self, connection: &mut MySqlConnection, statement: &Sql, id: MessageId) -> Result<Seen> {
        let found = sqlx::query_scalar(statement.text()).bind(id.to_string()).fetch_optional(connection).await;
        let found: Option<String> = match found {
            Err(error) if is_locked(&error) => return Ok(Seen::Locked),
            found => found.map_err(self.could_not(ASK))?,
        };
        let verdict = found.map_or(Ok(None), |verdict| Ok(verdict.parse::<HalfState>()?.verdict()));
        verdict.map(Seen::Verdict)
    }
}
