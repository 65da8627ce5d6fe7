//! Dead letters as operators find and redrive them, and the steps that they share with the inbox and the outbox.
//!
//! Every change of a dead letter writes its audit row in the same transaction.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{
    AtLeast, Database, DeadLetter, DeadLetterFilter, DeadLetterGroup, DeadLetterId, DeadLetterStats, DeadLetterStatus,
    DeadLetters, Discarded, OpenLetters, OutboxWriter, Redriven, Result,
};
use landfall_sql_toolkit::{
    Value, bind_values, check_edited_payload, count_letters, dead_letter_groups, dead_letter_stats, edit_refused,
    letters, open_letters, prepare_letters, set_ignored, top_error_codes,
};
use sqlx::{AssertSqlSafe, Row, SqliteConnection};

use crate::portable::DIALECT;
use crate::statements::Sql;
use crate::{Sqlite, row};

#[async_trait]
impl DeadLetters for Sqlite {
    async fn find(&self, filter: &DeadLetterFilter, limit: usize) -> Result<Vec<DeadLetter>> {
        self.selected(&self.statements().dead_letters, filter, limit).await
    }

    async fn list_letters(&self, filter: &DeadLetterFilter, limit: usize) -> Result<Vec<DeadLetter>> {
        self.selected(&self.statements().list_letters, filter, limit).await
    }

    async fn redrive(&self, filter: &DeadLetterFilter, actor: &str) -> Result<Redriven> {
        prepare_letters(self, filter).await?;
        let mut transaction = self.begin().await?;
        let (outcome, back_in_outbox) = self.matching(&mut transaction, filter).await?;
        if outcome.redriven.is_empty() {
            return Ok(outcome);
        }
        self.redrive_parked(&mut transaction, &outcome.redriven, actor, "").await?;
        self.commit(transaction).await?;
        if back_in_outbox {
            self.wake();
        }
        Ok(outcome)
    }

    async fn discard(&self, filter: &DeadLetterFilter, reason: &str, actor: &str) -> Result<Discarded> {
        prepare_letters(self, filter).await?;
        let mut transaction = self.begin().await?;
        let (found, frees_outbox) = self.matching(&mut transaction, filter).await?;
        let Redriven { redriven: discarded, skipped } = found;
        if !discarded.is_empty() {
            sqlx::query(self.statements().discard.text())
                .bind(id_list(&discarded))
                .execute(&mut *transaction)
                .await
                .map_err(self.cannot("discard dead letters"))?;
            self.release_keys(&mut transaction, &discarded).await?;
            self.record(&mut transaction, &discarded, actor, "discard", reason).await?;
            self.commit(transaction).await?;
            if frees_outbox {
                self.wake();
            }
        }
        Ok(Discarded { discarded, skipped })
    }

    async fn edit(&self, id: DeadLetterId, payload: &[u8], actor: &str) -> Result<()> {
        check_edited_payload(&self.inner.limits, payload)?;
        let mut transaction = self.begin().await?;
        let edited = sqlx::query(self.statements().edit.text())
            .bind(id)
            .bind(payload)
            .execute(&mut *transaction)
            .await
            .map_err(self.cannot("edit a dead letter"))?;
        if edited.rows_affected() == 0 {
            drop(transaction);
            let filter = DeadLetterFilter { id: Some(id), ..DeadLetterFilter::default() };
            return Err(edit_refused(id, self.find(&filter, 1).await?.first()));
        }
        let detail = format!("the payload now has {} bytes", payload.len());
        self.record(&mut transaction, &[id], actor, "edit", &detail).await?;
        self.commit(transaction).await
    }

    async fn ignore(&self, id: DeadLetterId, reason: &str, actor: &str) -> Result<()> {
        set_ignored(self, id, true, reason, actor).await
    }

    async fn release_ignored(&self, id: DeadLetterId, reason: &str, actor: &str) -> Result<()> {
        set_ignored(self, id, false, reason, actor).await
    }

    async fn count_letters(&self, filter: &DeadLetterFilter, most: u64) -> Result<AtLeast> {
        count_letters(self, filter, most).await
    }

    async fn dead_letter_groups(&self, filter: &DeadLetterFilter, limit: usize) -> Result<Vec<DeadLetterGroup>> {
        dead_letter_groups(self, filter, limit).await
    }

    async fn top_error_codes(&self, limit: usize) -> Result<Vec<(String, u64)>> {
        top_error_codes(self, limit).await
    }

    async fn open_letters(&self) -> Result<Vec<OpenLetters>> {
        let rows = sqlx::query_as(self.statements().open_letters.text())
            .fetch_all(&self.inner.pool)
            .await
            .map_err(self.cannot("count dead letters"))?;
        open_letters(rows)
    }

    async fn dead_letter_stats(&self) -> Result<DeadLetterStats> {
        let counts = sqlx::query_as(self.statements().dead_letter_stats.text())
            .fetch_all(&self.inner.pool)
            .await
            .map_err(self.cannot("count dead letters"))?;
        dead_letter_stats(counts)
    }

    async fn parked_age_p95(&self) -> Result<Duration> {
        let older = DeadLetterStats::rank_of_p95(self.dead_letter_stats().await?.parked);
        let age: Option<i64> = sqlx::query_scalar(self.statements().parked_age_p95.text())
            .bind(i64::try_from(older).unwrap_or(i64::MAX))
            .fetch_optional(&self.inner.pool)
            .await
            .map_err(self.cannot("read the age of dead letters"))?;
        Ok(Duration::from_millis(age.unwrap_or_default().unsigned_abs()))
    }
}

impl Sqlite {
    async fn selected(&self, select: &Sql, filter: &DeadLetterFilter, limit: usize) -> Result<Vec<DeadLetter>> {
        prepare_letters(self, filter).await?;
        let limit = (limit as u64).into();
        let (text, values) = self.matching_letters(select, filter, " ORDER BY id LIMIT ?", vec![limit]);
        let rows = bind_values(sqlx::query(text).persistent(false), values)
            .fetch_all(&self.inner.pool)
            .await
            .map_err(self.cannot("find dead letters"))?;
        rows.iter().map(row::dead_letter).collect()
    }

    /// Redrives letters that are parked.
    pub(crate) async fn redrive_parked(
        &self,
        connection: &mut SqliteConnection,
        parked: &[DeadLetterId],
        actor: &str,
        detail: &str,
    ) -> Result<()> {
        if parked.is_empty() {
            return Ok(());
        }
        let ids = id_list(parked);
        // The outbox rows first: once a dead letter is done, its key may be released.
        for statement in [&self.statements().return_to_outbox, &self.statements().redrive] {
            sqlx::query(statement.text())
                .bind(&ids)
                .execute(&mut *connection)
                .await
                .map_err(self.cannot("redrive dead letters"))?;
        }
        self.release_keys(connection, parked).await?;
        self.record(connection, parked, actor, "redrive", detail).await
    }

    /// Returns the parked dead letters that match (as `redriven`) and the others, and whether any parked one is the
    /// relay's.
    pub(crate) async fn matching(
        &self,
        connection: &mut SqliteConnection,
        filter: &DeadLetterFilter,
    ) -> Result<(Redriven, bool)> {
        let select = &self.statements().dead_letters_to_redrive;
        let (text, values) = self.matching_letters(select, filter, " ORDER BY id", Vec::new());
        let rows = bind_values(sqlx::query(text).persistent(false), values)
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

    /// Makes later messages of the dead letters' topics and keys wait.
    pub(crate) async fn hold_keys(&self, connection: &mut SqliteConnection, ids: &[DeadLetterId]) -> Result<()> {
        let query = sqlx::query(self.statements().hold_keys.text()).bind(id_list(ids));
        query.execute(connection).await.map_err(self.cannot("hold a key"))?;
        Ok(())
    }

    /// Releases the dead letters' topics and keys that have no other open dead letter.
    pub(crate) async fn release_keys(&self, connection: &mut SqliteConnection, ids: &[DeadLetterId]) -> Result<()> {
        let query = sqlx::query(self.statements().release_keys.text()).bind(id_list(ids));
        query.execute(connection).await.map_err(self.cannot("release a key"))?;
        Ok(())
    }

    /// Writes an action on each dead letter to the audit trail.
    pub(crate) async fn record(
        &self,
        connection: &mut SqliteConnection,
        ids: &[DeadLetterId],
        actor: &str,
        action: &str,
        detail: &str,
    ) -> Result<()> {
        sqlx::query(self.statements().record.text())
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

/// Returns ids as the JSON array that statements read.
pub(crate) fn id_list(ids: &[i64]) -> String {
    serde_json::Value::from(ids).to_string()
}

impl Sqlite {
    /// Returns the statement with a condition for every field of the filter that is set, and its values. `tail` follows
    /// the conditions, with the values `more`.
    fn matching_letters(
        &self,
        select: &Sql,
        filter: &DeadLetterFilter,
        tail: &str,
        more: Vec<Value>,
    ) -> (AssertSqlSafe<String>, Vec<Value>) {
        let (template, mut values) = letters(&DIALECT, select.as_str(), filter);
        values.extend(more);
        (AssertSqlSafe(DIALECT.fill(&(template + tail), self.prefix())), values)
    }
}
