//! The barrier in the business database. A question waits for a local transaction that inserts the same row.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{BarrierWriter, Barriers, Database, HalfState, HalfVerdict, MessageId, Result, Timestamp};
use landfall_sql_toolkit::{BARRIER_WAIT, barrier_is_removed, barrier_refused};
use sqlx::{AssertSqlSafe, PgConnection};

use crate::Postgres;
use crate::timestamp::TimestampTz;

/// A lock that was not granted in time, a read-only server or transaction, and a missing privilege.
const UNKNOWN: [&str; 3] = ["55P03", "25006", "42501"];

const ASK: &str = "ask the barrier";

impl BarrierWriter for Postgres {
    async fn enter_barrier(&self, connection: &mut PgConnection, id: MessageId) -> Result<()> {
        let entered = self.query(&self.statements().barrier_enter).bind(id.as_uuid()).execute(connection).await;
        entered.map(drop).map_err(|error| barrier_refused(id, self.could_not("enter the barrier")(error)))
    }
}

#[async_trait]
impl Barriers for Postgres {
    async fn ask_barrier(&self, id: MessageId, prepared_at: Timestamp) -> Result<Option<HalfVerdict>> {
        let mut transaction = self.begin().await?;
        let found = self.verdict(&mut transaction, id).await?;
        if found.is_some() {
            self.commit(transaction).await?;
            return Ok(found);
        }
        if !self.insert_tombstone(&mut transaction, id).await? {
            return Ok(None);
        }
        let verdict = self.verdict(&mut transaction, id).await?;
        // After the insert: a row that was removed meanwhile has moved this time.
        let removed: Option<TimestampTz> = self
            .query_scalar(&self.statements().barrier_removed)
            .fetch_optional(&mut *transaction)
            .await
            .map_err(self.could_not(ASK))?;
        if verdict == Some(HalfVerdict::RolledBack) && barrier_is_removed(prepared_at, removed.map(|time| time.0)) {
            return Ok(None);
        }
        self.commit(transaction).await?;
        Ok(verdict)
    }

    async fn longest_transaction(&self) -> Result<Option<Duration>> {
        let mut transaction = self.begin().await?;
        self.verdict(&mut transaction, MessageId::from_bytes([0; 16])).await?;
        let seconds: Option<f64> = self
            .query_scalar(&self.statements().longest_transaction)
            .fetch_one(&mut *transaction)
            .await
            .map_err(self.could_not("read open transactions"))?;
        Ok(seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()))
    }
}

impl Postgres {
    /// Inserts a tombstone unless there is a row. Returns false if that is impossible, or would take too long.
    async fn insert_tombstone(&self, connection: &mut PgConnection, id: MessageId) -> Result<bool> {
        let wait = AssertSqlSafe(format!("SET LOCAL lock_timeout = {}", BARRIER_WAIT.as_millis()));
        sqlx::raw_sql(wait).execute(&mut *connection).await.map_err(self.could_not(ASK))?;
        let inserted = self.query(&self.statements().barrier_tombstone).bind(id.as_uuid()).execute(connection).await;
        match inserted {
            Ok(_) => Ok(true),
            Err(sqlx::Error::Database(error)) if error.code().is_some_and(|code| UNKNOWN.contains(&&*code)) => {
                Ok(false)
            }
            Err(error) => Err(self.could_not("write a tombstone")(error)),
        }
    }

    async fn verdict(&self, connection: &mut PgConnection, id: MessageId) -> Result<Option<HalfVerdict>> {
        let found: Option<String> = self
            .query_scalar(&self.statements().barrier_verdict)
            .bind(id.as_uuid())
            .fetch_optional(connection)
            .await
            .map_err(self.could_not(ASK))?;
        found.map_or(Ok(None), |verdict| Ok(verdict.parse::<HalfState>()?.verdict()))
    }
}
