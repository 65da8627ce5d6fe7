//! Half messages: prepared, decided and checked. The decisions about order and repeats are the toolkit's.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::{
    AfterCheck, Database, Decided, DueCheck, Fingerprint, HalfMessage, HalfMessageFilter, HalfMessageRow,
    HalfMessageStats, HalfMessages, HalfVerdict, MessageId, Prepared, Result,
};
use landfall_sql_toolkit::{
    CHECK_BACK, EARLY, HALF_ACKNOWLEDGE, HALF_CONTRADICTION, HALF_PARK, HalfMessageTable, StoredHalf, bind_message,
    check_back_json, decide, due_check, half_message_row, prepare, push_half_message_filter, storable_answer,
};
use sqlx::{QueryBuilder, Row, SqliteConnection};

use crate::outbox::settle::millis;
use crate::statements::Sql;
use crate::{Sqlite, row};

#[async_trait]
impl HalfMessages for Sqlite {
    async fn prepare(&self, half: &HalfMessage, fingerprint: &Fingerprint) -> Result<Prepared> {
        half.check(&self.inner.limits)?;
        prepare(self, half, fingerprint).await
    }

    async fn decide(&self, id: MessageId, verdict: HalfVerdict, actor: &str) -> Result<Decided> {
        decide(self, id, verdict, actor).await
    }

    async fn claim_due(&self, limit: usize, lease: Duration) -> Result<Vec<DueCheck>> {
        // Without a write lock, while nothing is due.
        let is_due: bool = sqlx::query_scalar(self.statements().half_is_due.text())
            .fetch_one(&self.inner.pool)
            .await
            .map_err(self.cannot("look for due check-backs"))?;
        if !is_due {
            return Ok(Vec::new());
        }
        let mut transaction = self.begin().await?;
        let rows = sqlx::query(self.statements().half_due.text())
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(&mut *transaction)
            .await
            .map_err(self.cannot("claim check-backs"))?;
        let due = rows.iter().map(|row| due_check(row, row::message(row)?)).collect::<Result<Vec<_>>>()?;
        let ids: Vec<String> = due.iter().map(|check| check.half.message.id.to_string()).collect();
        sqlx::query(self.statements().half_claim.text())
            .bind(serde_json::Value::from(ids).to_string())
            .bind(millis(lease))
            .execute(&mut *transaction)
            .await
            .map_err(self.cannot("claim check-backs"))?;
        self.commit(transaction).await?;
        Ok(due)
    }

    async fn record_check(&self, id: MessageId, checks: u32, answer: &str, after: AfterCheck) -> Result<()> {
        let (state, pause) = match after {
            AfterCheck::Again(pause) => ("prepared", Some(millis(pause))),
            AfterCheck::Park => ("parked", None),
        };
        let answer = storable_answer(answer);
        let mut transaction = self.begin().await?;
        let recorded = sqlx::query(self.statements().half_record_check.text())
            .bind(id.to_string())
            .bind(i64::from(checks))
            .bind(&answer)
            .bind(state)
            .bind(pause)
            .execute(&mut *transaction)
            .await
            .map_err(self.cannot("record a check-back"))?;
        if recorded.rows_affected() == 1 && after == AfterCheck::Park {
            self.record_half(&mut transaction, id, CHECK_BACK, HALF_PARK, &answer).await?;
        }
        self.commit(transaction).await
    }

    async fn acknowledge_contradiction(&self, id: MessageId, actor: &str) -> Result<bool> {
        let mut transaction = self.begin().await?;
        let done = sqlx::query(self.statements().half_acknowledge.text())
            .bind(id.to_string())
            .bind(actor)
            .execute(&mut *transaction)
            .await
            .map_err(self.cannot("acknowledge a contradiction"))?;
        if done.rows_affected() == 1 {
            self.record_half(&mut transaction, id, actor, HALF_ACKNOWLEDGE, "").await?;
        }
        self.commit(transaction).await?;
        Ok(done.rows_affected() == 1)
    }

    async fn find_half_messages(&self, filter: &HalfMessageFilter, limit: usize) -> Result<Vec<HalfMessageRow>> {
        let mut query = QueryBuilder::new(self.statements().half_messages.as_str());
        push_half_message_filter(&mut query, filter, limit, |id| id.to_string(), |time| time.as_millis());
        let rows = query
            .build()
            .persistent(false)
            .fetch_all(&self.inner.pool)
            .await
            .map_err(self.cannot("find half messages"))?;
        rows.iter().map(half_message_row).collect()
    }

    async fn half_message_stats(&self) -> Result<HalfMessageStats> {
        let counts: (i64, i64, i64, i64, i64) = sqlx::query_as(self.statements().half_stats.text())
            .fetch_one(&self.inner.pool)
            .await
            .map_err(self.cannot("count half messages"))?;
        let (prepared, parked, contradicted, early_commits, oldest) = counts;
        Ok(HalfMessageStats {
            prepared: prepared.unsigned_abs(),
            parked: parked.unsigned_abs(),
            contradicted: contradicted.unsigned_abs(),
            early_commits: early_commits.unsigned_abs(),
            oldest_undecided_seconds: u64::try_from(oldest).unwrap_or_default(),
        })
    }
}

impl HalfMessageTable for Sqlite {
    async fn insert_half(&self, half: &HalfMessage, fingerprint: &Fingerprint) -> Result<bool> {
        let mut transaction = self.begin().await?;
        let stored = self.store(&mut transaction, &self.statements().half_insert, half, fingerprint).await?;
        self.commit(transaction).await?;
        Ok(stored)
    }

    async fn complete_early(&self, half: &HalfMessage, fingerprint: &Fingerprint) -> Result<bool> {
        let mut transaction = self.begin().await?;
        let completed = self.store(&mut transaction, &self.statements().half_complete, half, fingerprint).await?;
        if completed {
            self.enqueue_half(&mut transaction, half.message.id).await?;
        }
        self.commit(transaction).await?;
        Ok(completed)
    }

    async fn decide_undecided(&self, id: MessageId, verdict: HalfVerdict, actor: &str) -> Result<bool> {
        let mut transaction = self.begin().await?;
        let decided = sqlx::query(self.statements().half_decide.text())
            .bind(id.to_string())
            .bind(verdict.state().as_str())
            .bind(actor)
            .execute(&mut *transaction)
            .await
            .map_err(self.cannot("decide about a half message"))?;
        if decided.rows_affected() == 0 {
            return Ok(false);
        }
        self.enqueue_half(&mut transaction, id).await?;
        self.record_half(&mut transaction, id, actor, verdict.action(), "").await?;
        self.commit(transaction).await?;
        Ok(true)
    }

    async fn insert_early(&self, id: MessageId, verdict: HalfVerdict, actor: &str) -> Result<bool> {
        let mut transaction = self.begin().await?;
        let inserted = sqlx::query(self.statements().half_insert_early.text())
            .bind(id.to_string())
            .bind(verdict.state().as_str())
            .bind(actor)
            .execute(&mut *transaction)
            .await
            .map_err(self.cannot("store an early decision"))?;
        if inserted.rows_affected() == 0 {
            return Ok(false);
        }
        self.record_half(&mut transaction, id, actor, verdict.action(), EARLY).await?;
        self.commit(transaction).await?;
        Ok(true)
    }

    async fn contradict(&self, id: MessageId, verdict: HalfVerdict, actor: &str) -> Result<()> {
        let mut transaction = self.begin().await?;
        let recorded = sqlx::query(self.statements().half_contradict.text())
            .bind(id.to_string())
            .bind(actor)
            .execute(&mut *transaction)
            .await
            .map_err(self.cannot("record a contradiction"))?;
        if recorded.rows_affected() == 1 {
            self.record_half(&mut transaction, id, actor, HALF_CONTRADICTION, verdict.action()).await?;
        }
        self.commit(transaction).await
    }

    async fn stored_half(&self, id: MessageId) -> Result<Option<StoredHalf>> {
        let row = sqlx::query(self.statements().half_stored.text())
            .bind(id.to_string())
            .fetch_optional(&self.inner.pool)
            .await
            .map_err(self.cannot("look up a half message"))?;
        let Some(row) = row else { return Ok(None) };
        let columns = || Ok((row.try_get::<String, _>("state")?, row.try_get("fingerprint")?));
        let (state, fingerprint) = columns().map_err(self.cannot("look up a half message"))?;
        Ok(Some(StoredHalf { state: state.parse()?, fingerprint }))
    }
}

impl Sqlite {
    /// Runs a statement that stores a message, and returns whether it changed a row.
    async fn store(
        &self,
        connection: &mut SqliteConnection,
        statement: &Sql,
        half: &HalfMessage,
        fingerprint: &Fingerprint,
    ) -> Result<bool> {
        let HalfMessage { message, business_type, business_id, check_back, check_after } = half;
        let query = sqlx::query(statement.text());
        let stored = bind_message(query, message, message.id.to_string(), message.time.as_millis())
            .bind(&fingerprint[..])
            .bind(business_type)
            .bind(business_id)
            .bind(check_back_json(check_back)?)
            .bind(millis(*check_after))
            .execute(connection)
            .await
            .map_err(self.cannot("store a half message"))?;
        Ok(stored.rows_affected() == 1)
    }

    /// Copies a committed message into the outbox. Does nothing for any other.
    async fn enqueue_half(&self, connection: &mut SqliteConnection, id: MessageId) -> Result<()> {
        let query = sqlx::query(self.statements().half_enqueue.text()).bind(id.to_string());
        query.execute(connection).await.map_err(self.cannot("enqueue a committed message"))?;
        Ok(())
    }

    async fn record_half(
        &self,
        connection: &mut SqliteConnection,
        id: MessageId,
        actor: &str,
        action: &str,
        detail: &str,
    ) -> Result<()> {
        sqlx::query(self.statements().half_audit.text())
            .bind(actor)
            .bind(action)
            .bind(id.to_string())
            .bind(detail)
            .execute(connection)
            .await
            .map_err(self.cannot("write the audit trail"))?;
        Ok(())
    }
}
