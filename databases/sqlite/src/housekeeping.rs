//! Retention: removes expired rows, a limited number per call, since each call holds SQLite's only write lock.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{Database, Housekeeping, OutboxDetail, Result, RowId};
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;

use crate::dead_letter::id_list;
use crate::outbox::settle::millis;
use crate::statements::Sql;
use crate::{Sqlite, row};

#[async_trait]
impl Housekeeping for Sqlite {
    async fn remove_sent(&self, age: Duration, at_most: u64) -> Result<u64> {
        self.remove(&self.statements().remove_sent, age, at_most, "remove sent messages").await
    }

    async fn old_sent(&self, age: Duration, at_most: u64) -> Result<Vec<OutboxDetail>> {
        let rows = sqlx::query(self.statements().old_sent.text())
            .bind(millis(age))
            .bind(i64::try_from(at_most).unwrap_or(i64::MAX))
            .fetch_all(&self.inner.pool)
            .await
            .map_err(self.cannot("read sent messages"))?;
        rows.iter().map(row::outbox_detail).collect()
    }

    async fn remove_these_sent(&self, rows: &[RowId]) -> Result<u64> {
        let query = sqlx::query(self.statements().remove_these_sent.text()).bind(id_list(rows));
        self.removed_by(query, "remove sent messages").await
    }

    async fn forget_handled(&self, age: Duration, at_most: u64) -> Result<u64> {
        self.remove(&self.statements().forget_handled, age, at_most, "remove expired inbox rows").await
    }

    async fn remove_done_letters(&self, age: Duration, at_most: u64) -> Result<u64> {
        self.remove(&self.statements().remove_done_letters, age, at_most, "remove dead letters").await
    }

    async fn forget_sequences(&self, age: Duration, at_most: u64) -> Result<u64> {
        self.remove(&self.statements().forget_sequences, age, at_most, "remove expired sequences").await
    }
}

impl Sqlite {
    async fn remove(&self, statement: &Sql, age: Duration, at_most: u64, what: &'static str) -> Result<u64> {
        let at_most = i64::try_from(at_most).unwrap_or(i64::MAX);
        self.removed_by(sqlx::query(statement.text()).bind(millis(age)).bind(at_most), what).await
    }

    /// Runs a delete in its own transaction and returns the number of rows.
    async fn removed_by(&self, query: Query<'_, sqlx::Sqlite, SqliteArguments>, what: &'static str) -> Result<u64> {
        let mut transaction = self.begin().await?;
        let done = query.execute(&mut *transaction).await.map_err(self.cannot(what))?;
        self.commit(transaction).await?;
        Ok(done.rows_affected())
    }
}
