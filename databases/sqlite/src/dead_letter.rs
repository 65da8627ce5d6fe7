//! What people do with dead letters, and the steps that the inbox and the outbox share with them.
//!
//! Every change of a dead letter writes its audit row in the same transaction.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{
    Database, DeadLetter, DeadLetterFilter, DeadLetterId, DeadLetterStats, DeadLetterStatus, DeadLetters, OutboxWriter,
    Redriven, Result,
};
use sqlx::{QueryBuilder, Row, SqlStr, SqliteConnection};

use crate::{Sqlite, row};

#[async_trait]
impl DeadLetters for Sqlite {
    async fn find(&self, filter: &DeadLetterFilter, limit: usize) -> Result<Vec<DeadLetter>> {
        let mut query = filtered(&self.statements().dead_letters, filter);
        query.push(" ORDER BY id LIMIT ").push_bind(i64::try_from(limit).unwrap_or(i64::MAX));
        let rows = query
            .build()
            .persistent(false)
            .fetch_all(&self.inner.pool)
            .await
            .map_err(self.cannot("find dead letters"))?;
        rows.iter().map(row::dead_letter).collect()
    }

    async fn redrive(&self, filter: &DeadLetterFilter, actor: &str) -> Result<Redriven> {
        let mut transaction = self.begin().await?;
        let (outcome, back_in_outbox) = self.matching(&mut transaction, filter).await?;
        if outcome.redriven.is_empty() {
            return Ok(outcome);
        }
        let ids = id_list(&outcome.redriven);
        // The outbox rows first: once a dead letter is done, its key may be let go.
        for statement in [&self.statements().return_to_outbox, &self.statements().redrive] {
            sqlx::query(statement.clone())
                .bind(&ids)
                .execute(&mut *transaction)
                .await
                .map_err(self.cannot("redrive dead letters"))?;
        }
        self.release_keys(&mut transaction, &outcome.redriven).await?;
        self.record(&mut transaction, &outcome.redriven, actor, "redrive", "").await?;
        self.commit(transaction).await?;
        if back_in_outbox {
            self.wake();
        }
        Ok(outcome)
    }

    async fn dead_letter_stats(&self) -> Result<DeadLetterStats> {
        let rows: Vec<(String, i64)> = sqlx::query_as(self.statements().dead_letter_stats.clone())
            .fetch_all(&self.inner.pool)
            .await
            .map_err(self.cannot("count dead letters"))?;
        let mut stats = DeadLetterStats::default();
        for (status, count) in rows {
            let count = count.unsigned_abs();
            match status.parse()? {
                DeadLetterStatus::Parked => stats.parked = count,
                DeadLetterStatus::Delayed => stats.delayed = count,
                DeadLetterStatus::Waiting => stats.waiting = count,
                DeadLetterStatus::Redriving => stats.redriving = count,
                DeadLetterStatus::Done => stats.done = count,
            }
        }
        Ok(stats)
    }

    async fn parked_age_p95(&self) -> Result<Duration> {
        let older = DeadLetterStats::rank_of_p95(self.dead_letter_stats().await?.parked);
        let age: Option<i64> = sqlx::query_scalar(self.statements().parked_age_p95.clone())
            .bind(i64::try_from(older).unwrap_or(i64::MAX))
            .fetch_optional(&self.inner.pool)
            .await
            .map_err(self.cannot("ask for the age of dead letters"))?;
        Ok(Duration::from_millis(age.unwrap_or_default().unsigned_abs()))
    }
}

impl Sqlite {
    /// What a redrive would do with those that match, and whether any of them goes back into the outbox.
    async fn matching(&self, connection: &mut SqliteConnection, filter: &DeadLetterFilter) -> Result<(Redriven, bool)> {
        let mut query = filtered(&self.statements().dead_letters_to_redrive, filter);
        query.push(" ORDER BY id");
        let rows = query
            .build()
            .persistent(false)
            .fetch_all(connection)
            .await
            .map_err(self.cannot("find dead letters to redrive"))?;
        let mut outcome = Redriven::default();
        let mut back_in_outbox = false;
        for row in rows {
            let columns = || -> Result<(i64, String, String), sqlx::Error> {
                Ok((row.try_get("id")?, row.try_get("status")?, row.try_get("consumer_group")?))
            };
            let (id, status, group) = columns().map_err(self.cannot("find dead letters to redrive"))?;
            if status == DeadLetterStatus::Parked.as_str() {
                outcome.redriven.push(id);
                back_in_outbox |= group.is_empty();
            } else {
                outcome.skipped.push(id);
            }
        }
        Ok((outcome, back_in_outbox))
    }

    /// Later messages of their topics and keys wait from now on.
    pub(crate) async fn hold_keys(&self, connection: &mut SqliteConnection, ids: &[DeadLetterId]) -> Result<()> {
        let query = sqlx::query(self.statements().hold_keys.clone()).bind(id_list(ids));
        query.execute(connection).await.map_err(self.cannot("hold a key"))?;
        Ok(())
    }

    /// Lets their topics and keys go where no other dead letter is open.
    pub(crate) async fn release_keys(&self, connection: &mut SqliteConnection, ids: &[DeadLetterId]) -> Result<()> {
        let query = sqlx::query(self.statements().release_keys.clone()).bind(id_list(ids));
        query.execute(connection).await.map_err(self.cannot("release a key"))?;
        Ok(())
    }

    /// Writes the audit trail: who did what to each of them.
    pub(crate) async fn record(
        &self,
        connection: &mut SqliteConnection,
        ids: &[DeadLetterId],
        actor: &str,
        action: &str,
        detail: &str,
    ) -> Result<()> {
        sqlx::query(self.statements().record.clone())
            .bind(id_list(ids))
            .bind(actor)
            .bind(action)
            .bind(detail)
            .execute(connection)
            .await
            .map_err(self.cannot("write the audit trail"))?;
        Ok(())
    }
}

/// Ids as the one JSON array in which they travel to SQLite.
pub(crate) fn id_list(ids: &[i64]) -> String {
    serde_json::Value::from(ids).to_string()
}

/// `select` with a condition for every field of the filter that is set. Values are bound, never pasted.
fn filtered(select: &SqlStr, filter: &DeadLetterFilter) -> QueryBuilder<sqlx::Sqlite> {
    let mut query = QueryBuilder::new(select.as_str());
    if let Some(id) = filter.id {
        query.push(" AND id = ").push_bind(id);
    }
    if let Some(message_id) = filter.message_id {
        query.push(" AND message_id = ").push_bind(message_id.to_string());
    }
    if let Some(group) = &filter.group {
        query.push(" AND consumer_group = ").push_bind(group.to_string());
    }
    if let Some(topic) = &filter.topic {
        query.push(" AND topic = ").push_bind(topic.to_string());
    }
    if let Some(key) = &filter.key {
        query.push(" AND key = ").push_bind(key.to_string());
    }
    if let Some(error_code) = &filter.error_code {
        query.push(" AND error_code = ").push_bind(error_code.clone());
    }
    if let Some(status) = filter.status {
        query.push(" AND status = ").push_bind(status.as_str());
    }
    if let Some(from) = filter.from {
        query.push(" AND first_seen >= ").push_bind(from.as_millis());
    }
    if let Some(to) = filter.to {
        query.push(" AND first_seen < ").push_bind(to.as_millis());
    }
    if let Some(after) = filter.after {
        query.push(" AND id > ").push_bind(after);
    }
    query
}
