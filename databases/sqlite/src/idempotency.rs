//! Idempotency records: claims, fencing, answers and tokens. The rules are core's, and the loop is the toolkit's.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::idempotency::{
    Claim, Epoch, Fingerprint, IdempotencyRecords, Identity, OneTimeTokens, Opened, Outcome, RecordFilter, RecordId,
    RecordRow, RecordStats, RecordWriter, Resolution, Settled, Snapshot, StoredRecord, Terms, settled,
};
use landfall_core::{Database, Result, Timestamp};
use landfall_sql_toolkit::{
    RecordTable, audited_id, claim_record, headers_json, no_open_record, open_record, push_record_filter, record_row,
    storable_answer, stored_record,
};
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{QueryBuilder, SqliteConnection};

use crate::Sqlite;
use crate::outbox::settle::millis;
use crate::statements::Sql;

const CLAIM: &str = "claim an idempotency record";
const READ: &str = "read an idempotency record";
const RESOLVE: &str = "resolve an idempotency record";
const SETTLE: &str = "settle an idempotency record";

#[async_trait]
impl IdempotencyRecords for Sqlite {
    async fn claim_record(&self, identity: &Identity, fingerprint: &Fingerprint, terms: &Terms) -> Result<Claim> {
        claim_record(self, identity, fingerprint, terms).await
    }

    async fn renew_record(&self, identity: &Identity, epoch: Epoch, lease: Duration) -> Result<Option<Duration>> {
        let mut transaction = self.begin().await?;
        let remaining: Option<i64> = sqlx::query_scalar(self.statements().record_renew.text())
            .bind(identity.id().as_bytes().to_vec())
            .bind(epoch)
            .bind(millis(lease))
            .fetch_optional(&mut *transaction)
            .await
            .map_err(self.cannot("renew an idempotency record"))?;
        self.commit(transaction).await?;
        Ok(remaining.map(|millis| Duration::from_millis(millis.unsigned_abs())))
    }

    async fn settle_record(&self, identity: &Identity, epoch: Epoch, outcome: &Outcome) -> Result<Settled> {
        let (sql, id) = (self.statements(), identity.id());
        let about = |statement: &Sql| sqlx::query(statement.text()).bind(id.as_bytes().to_vec()).bind(epoch);
        let query = match outcome {
            Outcome::Done(answer) => bind_answer(about(&sql.record_complete), answer)?,
            Outcome::NothingDone => about(&sql.record_release),
            Outcome::Unknown(reason) => about(&sql.record_unknown).bind(storable_answer(reason)),
        };
        let mut transaction = self.begin().await?;
        let changed = query.execute(&mut *transaction).await.map_err(self.cannot(SETTLE))?.rows_affected();
        self.commit(transaction).await?;
        if changed == 1 {
            return Ok(Settled::Recorded);
        }
        Ok(settled(self.peek_record(id).await?, epoch, outcome))
    }

    async fn resolve_record(&self, id: RecordId, resolution: &Resolution, actor: &str) -> Result<bool> {
        let (state, answer) = match resolution {
            Resolution::Done(answer) => ("completed", Some(answer)),
            Resolution::Rerun => ("released", None),
        };
        let headers = answer.map(headers_json).transpose()?;
        let mut transaction = self.begin().await?;
        let resolved = sqlx::query(self.statements().record_resolve.text())
            .bind(id.as_bytes().to_vec())
            .bind(state)
            .bind(answer.map(|answer| i64::from(answer.status)))
            .bind(headers)
            .bind(answer.and_then(|answer| answer.body.kept()).map(|body| body.to_vec()))
            .bind(answer.map(|answer| answer.body.as_str()))
            .bind(actor)
            .execute(&mut *transaction)
            .await
            .map_err(self.cannot(RESOLVE))?
            .rows_affected();
        if resolved == 1 {
            sqlx::query(self.statements().record_audit.text())
                .bind(id.as_bytes().to_vec())
                .bind(actor)
                .bind(resolution.action())
                .bind(audited_id(id).to_string())
                .execute(&mut *transaction)
                .await
                .map_err(self.cannot("write the audit trail"))?;
        }
        self.commit(transaction).await?;
        Ok(resolved == 1)
    }

    async fn find_records(&self, filter: &RecordFilter, limit: usize) -> Result<Vec<RecordRow>> {
        let mut query = QueryBuilder::new(self.statements().records.as_str());
        push_record_filter(&mut query, filter, limit, "key", |time| time.as_millis());
        let rows = query
            .build()
            .persistent(false)
            .fetch_all(&self.inner.pool)
            .await
            .map_err(self.cannot("find idempotency records"))?;
        rows.iter().map(record_row).collect()
    }

    async fn record_stats(&self) -> Result<RecordStats> {
        let (in_flight, uncertain, oldest): (i64, i64, i64) = sqlx::query_as(self.statements().record_stats.text())
            .fetch_one(&self.inner.pool)
            .await
            .map_err(self.cannot("count idempotency records"))?;
        Ok(RecordStats {
            in_flight: in_flight.unsigned_abs(),
            uncertain: uncertain.unsigned_abs(),
            oldest_uncertain_seconds: oldest.unsigned_abs(),
        })
    }
}

#[async_trait]
impl OneTimeTokens for Sqlite {
    async fn issue_token(&self, identity: &Identity, ttl: Duration) -> Result<Timestamp> {
        let mut transaction = self.begin().await?;
        let expires_at: i64 = sqlx::query_scalar(self.statements().token_issue.text())
            .bind(identity.id().as_bytes().to_vec())
            .bind(identity.kind().as_str())
            .bind(identity.scope().as_str())
            .bind(identity.business_type())
            .bind(identity.key())
            .bind(millis(ttl))
            .fetch_one(&mut *transaction)
            .await
            .map_err(self.cannot("issue a token"))?;
        self.commit(transaction).await?;
        Ok(Timestamp::from_millis(expires_at))
    }
}

impl RecordTable for Sqlite {
    async fn insert_record(
        &self,
        connection: &mut SqliteConnection,
        identity: &Identity,
        fingerprint: &Fingerprint,
        terms: &Terms,
    ) -> Result<Option<Epoch>> {
        sqlx::query_scalar(self.statements().record_insert.text())
            .bind(identity.id().as_bytes().to_vec())
            .bind(identity.kind().as_str())
            .bind(identity.scope().as_str())
            .bind(identity.business_type())
            .bind(identity.key())
            .bind(&fingerprint[..])
            .bind(terms.on_unknown.is_uncertain())
            .bind(millis(terms.lease))
            .bind(millis(terms.ceiling))
            .fetch_optional(connection)
            .await
            .map_err(self.cannot(CLAIM))
    }

    async fn take_over_record(
        &self,
        connection: &mut SqliteConnection,
        id: RecordId,
        seen: &StoredRecord,
        fingerprint: &Fingerprint,
        terms: &Terms,
    ) -> Result<Option<Epoch>> {
        sqlx::query_scalar(self.statements().record_take_over.text())
            .bind(&id.as_bytes()[..])
            .bind(seen.epoch)
            .bind(seen.state.as_str())
            .bind(&fingerprint[..])
            .bind(terms.on_unknown.is_uncertain())
            .bind(millis(terms.lease))
            .bind(millis(terms.ceiling))
            .fetch_optional(connection)
            .await
            .map_err(self.cannot(CLAIM))
    }

    async fn stored_record(&self, connection: &mut SqliteConnection, id: RecordId) -> Result<Option<StoredRecord>> {
        let query = sqlx::query(self.statements().record_stored.text()).bind(&id.as_bytes()[..]);
        let found = query.fetch_optional(connection).await.map_err(self.cannot(READ))?;
        found.as_ref().map(stored_record).transpose()
    }

    async fn peek_record(&self, id: RecordId) -> Result<Option<StoredRecord>> {
        let query = sqlx::query(self.statements().record_stored.text()).bind(&id.as_bytes()[..]);
        let found = query.fetch_optional(&self.inner.pool).await.map_err(self.cannot(READ))?;
        found.as_ref().map(stored_record).transpose()
    }
}

impl RecordWriter for Sqlite {
    async fn open_record(
        &self,
        connection: &mut SqliteConnection,
        identity: &Identity,
        fingerprint: &Fingerprint,
    ) -> Result<Opened> {
        open_record(self, connection, identity, fingerprint).await
    }

    async fn store_answer(
        &self,
        connection: &mut SqliteConnection,
        identity: &Identity,
        answer: &Snapshot,
    ) -> Result<()> {
        let query = sqlx::query(self.statements().record_answer.text()).bind(identity.id().as_bytes().to_vec());
        let stored = bind_answer(query, answer)?.execute(connection).await.map_err(self.cannot(SETTLE))?;
        if stored.rows_affected() == 1 { Ok(()) } else { Err(no_open_record(identity)) }
    }
}

/// Binds status, headers, body and its state.
fn bind_answer<'q>(
    query: Query<'q, sqlx::Sqlite, SqliteArguments>,
    answer: &'q Snapshot,
) -> Result<Query<'q, sqlx::Sqlite, SqliteArguments>> {
    Ok(query
        .bind(i64::from(answer.status))
        .bind(headers_json(answer)?)
        .bind(answer.body.kept().map(|body| &body[..]))
        .bind(answer.body.as_str()))
}
