//! The barrier in the business database. SQLite has one writer, so any open transaction makes a missing row unknown.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{
    BarrierWriter, Barriers, Database, ErrorKind, HalfState, HalfVerdict, MessageId, Result, Timestamp,
};
use landfall_sql_toolkit::{BARRIER_WAIT, barrier_is_removed, barrier_refused};
use sqlx::SqliteConnection;

use crate::{Sqlite, Transaction};

const ASK: &str = "ask the barrier";

impl BarrierWriter for Sqlite {
    async fn enter_barrier(&self, connection: &mut SqliteConnection, id: MessageId) -> Result<()> {
        let entered =
            sqlx::query(self.statements().barrier_enter.text()).bind(id.to_string()).execute(connection).await;
        entered.map(drop).map_err(|error| barrier_refused(id, self.cannot("enter the barrier")(error)))
    }
}

#[async_trait]
impl Barriers for Sqlite {
    async fn ask_barrier(&self, id: MessageId, prepared_at: Timestamp) -> Result<Option<HalfVerdict>> {
        let asked = tokio::time::timeout(BARRIER_WAIT, self.ask(id, prepared_at)).await;
        match asked {
            Ok(Ok(Asked::Known(verdict))) => Ok(verdict),
            Ok(Ok(Asked::Tombstone(transaction))) => {
                self.commit(transaction).await?;
                Ok(Some(HalfVerdict::RolledBack))
            }
            // The connection may not write.
            Ok(Err(error)) if error.kind() == ErrorKind::Invalid => Ok(None),
            Ok(Err(error)) => Err(error),
            // A transaction is open, and it may insert the row.
            Err(_) => Ok(None),
        }
    }

    /// SQLite does not tell.
    async fn longest_transaction(&self) -> Result<Option<Duration>> {
        let mut connection = self.inner.pool.acquire().await.map_err(self.cannot(ASK))?;
        self.verdict(&mut connection, MessageId::from_bytes([0; 16])).await?;
        Ok(None)
    }
}

enum Asked {
    Known(Option<HalfVerdict>),
    /// Inserted, and not committed yet.
    Tombstone(Transaction),
}

impl Sqlite {
    async fn ask(&self, id: MessageId, prepared_at: Timestamp) -> Result<Asked> {
        let mut connection = self.inner.pool.acquire().await.map_err(self.cannot(ASK))?;
        let found = self.verdict(&mut connection, id).await?;
        if found.is_some() {
            return Ok(Asked::Known(found));
        }
        // An in-memory database has only this one.
        drop(connection);
        let mut transaction = self.begin().await?;
        let inserted = sqlx::query(self.statements().barrier_tombstone.text())
            .bind(id.to_string())
            .execute(&mut *transaction)
            .await
            .map_err(self.cannot("write a tombstone"))?;
        if inserted.rows_affected() == 0 {
            return Ok(Asked::Known(self.verdict(&mut transaction, id).await?));
        }
        // After the insert: a row that was removed meanwhile has moved this time.
        let removed: Option<i64> = sqlx::query_scalar(self.statements().barrier_removed.text())
            .fetch_optional(&mut *transaction)
            .await
            .map_err(self.cannot(ASK))?;
        if barrier_is_removed(prepared_at, removed.map(Timestamp::from_millis)) {
            return Ok(Asked::Known(None));
        }
        Ok(Asked::Tombstone(transaction))
    }

    async fn verdict(&self, connection: &mut SqliteConnection, id: MessageId) -> Result<Option<HalfVerdict>> {
        let found: Option<String> = sqlx::query_scalar(self.statements().barrier_verdict.text())
            .bind(id.to_string())
            .fetch_optional(connection)
            .await
            .map_err(self.cannot(ASK))?;
        found.map_or(Ok(None), |verdict| Ok(verdict.parse::<HalfState>()?.verdict()))
    }
}
