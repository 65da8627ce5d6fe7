//! Retention: removes expired rows, a limited number per call, since each call holds SQLite's only write lock.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{Database, Expiring, HalfMessageDetail, Housekeeping, MessageId, OutboxDetail, Result, RowId};
use landfall_sql_toolkit::half_message_detail;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;

use crate::dead_letter::id_list;
use crate::outbox::settle::millis;
use crate::{Sqlite, row};

#[async_trait]
impl Housekeeping for Sqlite {
    async fn remove_expired(&self, what: Expiring, age: Duration, at_most: u64) -> Result<u64> {
        let sql = self.statements();
        let statement = match what {
            Expiring::Sent => &sql.remove_sent,
            Expiring::HandledIds => &sql.forget_handled,
            Expiring::EnqueuedIds => &sql.remove_enqueued_ids,
            Expiring::Retries => &sql.remove_retries,
            Expiring::DoneLetters => &sql.remove_done_letters,
            Expiring::Sequences => &sql.forget_sequences,
            Expiring::IdempotencyAnswers => &sql.remove_answers,
            Expiring::IdempotencyRecords => &sql.remove_records,
            Expiring::HalfMessages => &sql.remove_half_messages,
            Expiring::Barriers => return self.remove_barriers(age, at_most).await,
        };
        let at_most = i64::try_from(at_most).unwrap_or(i64::MAX);
        self.removed_by(sqlx::query(statement.text()).bind(millis(age)).bind(at_most), "remove expired rows").await
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

    async fn old_half_messages(&self, age: Duration, at_most: u64) -> Result<Vec<HalfMessageDetail>> {
        let rows = sqlx::query(self.statements().half_old.text())
            .bind(millis(age))
            .bind(i64::try_from(at_most).unwrap_or(i64::MAX))
            .fetch_all(&self.inner.pool)
            .await
            .map_err(self.cannot("read half messages"))?;
        rows.iter().map(half_message_detail).collect()
    }

    async fn remove_these_half_messages(&self, ids: &[MessageId]) -> Result<u64> {
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let ids = serde_json::Value::from(ids).to_string();
        let query = sqlx::query(self.statements().remove_these_half.text()).bind(ids);
        self.removed_by(query, "remove half messages").await
    }
}

impl Sqlite {
    /// Removes barrier rows, and records from when on a missing row has a meaning.
    async fn remove_barriers(&self, age: Duration, at_most: u64) -> Result<u64> {
        let mut transaction = self.begin().await?;
        let removed = sqlx::query(self.statements().remove_barriers.text())
            .bind(millis(age))
            .bind(i64::try_from(at_most).unwrap_or(i64::MAX))
            .execute(&mut *transaction)
            .await
            .map_err(self.cannot("remove barrier rows"))?;
        if removed.rows_affected() > 0 {
            sqlx::query(self.statements().barriers_removed.text())
                .bind(millis(age))
                .execute(&mut *transaction)
                .await
                .map_err(self.cannot("remove barrier rows"))?;
        }
        self.commit(transaction).await?;
        Ok(removed.rows_affected())
    }

    /// Runs a delete in its own transaction and returns the number of rows.
    async fn removed_by(&self, query: Query<'_, sqlx::Sqlite, SqliteArguments>, what: &'static str) -> Result<u64> {
        let mut transaction = self.begin().await?;
        let done = query.execute(&mut *transaction).await.map_err(self.cannot(what))?;
        self.commit(transaction).await?;
        Ok(done.rows_affected())
    }
}
