//! Retention: removes expired rows, a limited number per call.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{Database, Expiring, HalfMessageDetail, Housekeeping, MessageId, OutboxDetail, Result, RowId};
use landfall_sql_toolkit::half_message_detail;
use sqlx::mysql::MySqlArguments;
use sqlx::query::Query;

use crate::connection::retry::retry_deadlocks;
use crate::outbox::settle::{json_array, micros};
use crate::statements::Sql;
use crate::{MySql, row};

#[async_trait]
impl Housekeeping for MySql {
    async fn remove_expired(&self, what: Expiring, age: Duration, at_most: u64) -> Result<u64> {
        let sql = self.statements();
        let statement = match what {
            Expiring::Sent => &sql.remove_sent,
            Expiring::HandledIds => &sql.forget_handled,
            Expiring::EnqueuedIds => &sql.remove_enqueued_ids,
            Expiring::Retries => &sql.remove_retries,
            Expiring::DoneLetters => return retry_deadlocks(|| self.remove_done_letters(age, at_most)).await,
            Expiring::Sequences => &sql.forget_sequences,
            Expiring::IdempotencyAnswers => &sql.remove_answers,
            Expiring::IdempotencyRecords => &sql.remove_records,
            Expiring::HalfMessages => &sql.remove_half_messages,
            Expiring::Barriers => return self.remove_barriers(age, at_most).await,
        };
        retry_deadlocks(|| self.remove_old(statement, age, at_most)).await
    }

    async fn old_sent(&self, age: Duration, at_most: u64) -> Result<Vec<OutboxDetail>> {
        let rows = sqlx::query(self.statements().old_sent.text())
            .bind(micros(age))
            .bind(i64::try_from(at_most).unwrap_or(i64::MAX))
            .fetch_all(self.pool())
            .await
            .map_err(self.could_not("read sent messages"))?;
        rows.iter().map(row::outbox_detail).collect()
    }

    async fn remove_these_sent(&self, rows: &[RowId]) -> Result<u64> {
        let statement = &self.statements().remove_these_sent;
        retry_deadlocks(|| self.removed_by(sqlx::query(statement.text()).bind(json_array(rows)))).await
    }

    async fn old_half_messages(&self, age: Duration, at_most: u64) -> Result<Vec<HalfMessageDetail>> {
        let rows = sqlx::query(self.statements().half_old.text())
            .bind(micros(age))
            .bind(i64::try_from(at_most).unwrap_or(i64::MAX))
            .fetch_all(self.pool())
            .await
            .map_err(self.could_not("read half messages"))?;
        rows.iter().map(half_message_detail).collect()
    }

    async fn remove_these_half_messages(&self, ids: &[MessageId]) -> Result<u64> {
        let ids: Vec<String> = ids.iter().map(|id| id.as_uuid().simple().to_string()).collect();
        let ids = serde_json::Value::from(ids).to_string();
        let statement = &self.statements().remove_these_half;
        retry_deadlocks(|| self.removed_by(sqlx::query(statement.text()).bind(ids.clone()))).await
    }
}

impl MySql {
    async fn remove_old(&self, statement: &Sql, age: Duration, at_most: u64) -> Result<u64> {
        let at_most = i64::try_from(at_most).unwrap_or(i64::MAX);
        self.removed_by(sqlx::query(statement.text()).bind(micros(age)).bind(at_most)).await
    }

    async fn remove_done_letters(&self, age: Duration, at_most: u64) -> Result<u64> {
        let at_most = i64::try_from(at_most).unwrap_or(i64::MAX);
        let statement = self.statements().remove_done_letters.text();
        self.removed_by(sqlx::query(statement).bind(micros(age)).bind(micros(age)).bind(at_most)).await
    }

    /// Runs a delete in its own transaction and returns the number of rows.
    async fn removed_by(&self, query: Query<'_, sqlx::MySql, MySqlArguments>) -> Result<u64> {
        let mut transaction = self.begin().await?;
        let done = query.execute(&mut *transaction).await.map_err(self.could_not("remove expired rows"))?;
        self.commit(transaction).await?;
        Ok(done.rows_affected())
    }
}
