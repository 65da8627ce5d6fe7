//! Idempotency records: claims, fencing, answers and tokens. The rules are core's, and the loop is the toolkit's.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::idempotency::{
    Claim, Epoch, Fingerprint, IdempotencyRecords, Identity, OneTimeTokens, Opened, Outcome, RecordFilter, RecordId,
    RecordRow, RecordState, RecordStats, RecordWriter, Resolution, Settled, Snapshot, StoredRecord, Terms, settled,
};
use landfall_core::{Database, Error, ErrorKind, Result, Timestamp};
use landfall_sql_toolkit::{
    RecordTable, audited_id, claim_record, headers_json, no_open_record, open_record, push_record_filter, record_row,
    storable_answer, stored_record,
};
use sqlx::mysql::MySqlArguments;
use sqlx::query::Query;
use sqlx::{MySqlConnection, QueryBuilder};

use crate::connection::retry::retry_deadlocks;
use crate::{MySql, row, timestamp};

const CLAIM: &str = "claim an idempotency record";
const READ: &str = "read an idempotency record";
const RENEW: &str = "renew an idempotency record";
const RESOLVE: &str = "resolve an idempotency record";
const SETTLE: &str = "settle an idempotency record";
const ISSUE: &str = "issue a token";

#[async_trait]
impl IdempotencyRecords for MySql {
    async fn claim_record(&self, identity: &Identity, fingerprint: &Fingerprint, terms: &Terms) -> Result<Claim> {
        retry_deadlocks(|| claim_record(self, identity, fingerprint, terms)).await
    }

    async fn renew_record(&self, identity: &Identity, epoch: Epoch, lease: Duration) -> Result<Option<Duration>> {
        let id = identity.id();
        let renew = async || {
            let mut transaction = self.begin().await?;
            let renewed = sqlx::query(self.statements().record_renew.text())
                .bind(micros(lease))
                .bind(millis(lease))
                .bind(&id.as_bytes()[..])
                .bind(epoch)
                .execute(&mut *transaction)
                .await
                .map_err(self.could_not(RENEW))?;
            if renewed.rows_affected() == 0 {
                return Ok(None);
            }
            let stored = self.stored_record(&mut transaction, id).await?;
            self.commit(transaction).await?;
            Ok(stored.map(|stored| stored.remaining))
        };
        retry_deadlocks(renew).await
    }

    async fn settle_record(&self, identity: &Identity, epoch: Epoch, outcome: &Outcome) -> Result<Settled> {
        let id = identity.id();
        let settle = async || {
            let sql = self.statements();
            let query = match outcome {
                Outcome::Done(answer) => bind_answer(sqlx::query(sql.record_complete.text()), answer)?,
                Outcome::NothingDone => sqlx::query(sql.record_release.text()),
                Outcome::Unknown(reason) => sqlx::query(sql.record_unknown.text()).bind(storable_answer(reason)),
            };
            let query = query.bind(&id.as_bytes()[..]).bind(epoch);
            let changed = query.execute(self.pool()).await.map_err(self.could_not(SETTLE))?;
            Ok(changed.rows_affected() == 1)
        };
        if retry_deadlocks(settle).await? {
            return Ok(Settled::Recorded);
        }
        Ok(settled(self.peek_record(id).await?, epoch, outcome))
    }

    async fn resolve_record(&self, id: RecordId, resolution: &Resolution, actor: &str) -> Result<bool> {
        let actor = row::actor(actor);
        retry_deadlocks(|| self.resolve(id, resolution, &actor)).await
    }

    async fn find_records(&self, filter: &RecordFilter, limit: usize) -> Result<Vec<RecordRow>> {
        let mut query = QueryBuilder::new(self.statements().records.as_str());
        push_record_filter(&mut query, filter, limit, "`key`", timestamp::text);
        let rows = query
            .build()
            .persistent(false)
            .fetch_all(self.pool())
            .await
            .map_err(self.could_not("find idempotency records"))?;
        rows.iter().map(record_row).collect()
    }

    async fn record_stats(&self) -> Result<RecordStats> {
        let (in_flight, uncertain, oldest): (i64, i64, i64) = sqlx::query_as(self.statements().record_stats.text())
            .fetch_one(self.pool())
            .await
            .map_err(self.could_not("count idempotency records"))?;
        Ok(RecordStats {
            in_flight: in_flight.unsigned_abs(),
            uncertain: uncertain.unsigned_abs(),
            oldest_uncertain_seconds: oldest.unsigned_abs(),
        })
    }
}

#[async_trait]
impl OneTimeTokens for MySql {
    async fn issue_token(&self, identity: &Identity, ttl: Duration) -> Result<Timestamp> {
        let id = identity.id();
        let mut transaction = self.begin().await?;
        sqlx::query(self.statements().token_issue.text())
            .bind(&id.as_bytes()[..])
            .bind(identity.kind().as_str())
            .bind(identity.scope().as_str())
            .bind(identity.business_type())
            .bind(identity.key())
            .bind(micros(ttl))
            .bind(millis(ttl))
            .execute(&mut *transaction)
            .await
            .map_err(self.could_not(ISSUE))?;
        let expires_at: i64 = sqlx::query_scalar(self.statements().token_expiry.text())
            .bind(&id.as_bytes()[..])
            .fetch_one(&mut *transaction)
            .await
            .map_err(self.could_not(ISSUE))?;
        self.commit(transaction).await?;
        Ok(Timestamp::from_millis(expires_at))
    }
}

impl RecordTable for MySql {
    async fn insert_record(
        &self,
        connection: &mut MySqlConnection,
        identity: &Identity,
        fingerprint: &Fingerprint,
        terms: &Terms,
    ) -> Result<Option<Epoch>> {
        let id = identity.id();
        let inserted = sqlx::query(self.statements().record_insert.text())
            .bind(&id.as_bytes()[..])
            .bind(identity.kind().as_str())
            .bind(identity.scope().as_str())
            .bind(identity.business_type())
            .bind(identity.key())
            .bind(&fingerprint[..])
            .bind(terms.on_unknown.is_uncertain())
            .bind(micros(terms.lease))
            .bind(millis(terms.lease))
            .bind(micros(terms.ceiling))
            .execute(&mut *connection)
            .await
            .map_err(self.could_not(CLAIM))?;
        if inserted.rows_affected() == 0 {
            return Ok(None);
        }
        self.written_epoch(connection, id).await.map(Some)
    }

    async fn take_over_record(
        &self,
        connection: &mut MySqlConnection,
        id: RecordId,
        seen: &StoredRecord,
        fingerprint: &Fingerprint,
        terms: &Terms,
    ) -> Result<Option<Epoch>> {
        let taken = sqlx::query(self.statements().record_take_over.text())
            .bind(&fingerprint[..])
            .bind(terms.on_unknown.is_uncertain())
            .bind(micros(terms.lease))
            .bind(millis(terms.lease))
            .bind(micros(terms.ceiling))
            .bind(&id.as_bytes()[..])
            .bind(seen.epoch)
            .bind(seen.state.as_str())
            .execute(connection)
            .await
            .map_err(self.could_not(CLAIM))?;
        Ok((taken.rows_affected() == 1).then_some(seen.epoch + 1))
    }

    async fn stored_record(&self, connection: &mut MySqlConnection, id: RecordId) -> Result<Option<StoredRecord>> {
        let query = sqlx::query(self.statements().record_stored.text()).bind(&id.as_bytes()[..]);
        let found = query.fetch_optional(connection).await.map_err(self.could_not(READ))?;
        found.as_ref().map(stored_record).transpose()
    }

    async fn peek_record(&self, id: RecordId) -> Result<Option<StoredRecord>> {
        let mut transaction = self.begin().await?;
        let stored = self.stored_record(&mut transaction, id).await?;
        // A caller acts on these; an attempt in flight, or none, is only waited for or claimed.
        if stored.as_ref().is_some_and(|stored| stored.state != RecordState::InFlight) {
            self.flush(transaction).await?;
        }
        Ok(stored)
    }
}

impl RecordWriter for MySql {
    async fn open_record(
        &self,
        connection: &mut MySqlConnection,
        identity: &Identity,
        fingerprint: &Fingerprint,
    ) -> Result<Opened> {
        open_record(self, connection, identity, fingerprint).await
    }

    async fn store_answer(
        &self,
        connection: &mut MySqlConnection,
        identity: &Identity,
        answer: &Snapshot,
    ) -> Result<()> {
        let id = identity.id();
        let query = bind_answer(sqlx::query(self.statements().record_answer.text()), answer)?;
        let stored = query.bind(&id.as_bytes()[..]).execute(connection).await.map_err(self.could_not(SETTLE))?;
        if stored.rows_affected() == 1 { Ok(()) } else { Err(no_open_record(identity)) }
    }
}

impl MySql {
    /// Returns the epoch that this transaction has written.
    async fn written_epoch(&self, connection: &mut MySqlConnection, id: RecordId) -> Result<Epoch> {
        let stored = self.stored_record(connection, id).await?;
        let missing = || Error::new(ErrorKind::Internal, "an idempotency record disappeared in its own transaction");
        stored.map(|stored| stored.epoch).ok_or_else(missing)
    }

    async fn resolve(&self, id: RecordId, resolution: &Resolution, actor: &str) -> Result<bool> {
        let (state, answer) = match resolution {
            Resolution::Done(answer) => ("completed", Some(answer)),
            Resolution::Rerun => ("released", None),
        };
        let mut transaction = self.begin().await?;
        let resolved = sqlx::query(self.statements().record_resolve.text())
            .bind(answer.map(|answer| i64::from(answer.status)))
            .bind(answer.map(headers_json).transpose()?)
            .bind(answer.and_then(|answer| answer.body.kept()).map(|body| &body[..]))
            .bind(answer.map(|answer| answer.body.as_str()))
            .bind(actor)
            .bind(state)
            .bind(&id.as_bytes()[..])
            .execute(&mut *transaction)
            .await
            .map_err(self.could_not(RESOLVE))?
            .rows_affected();
        if resolved == 1 {
            sqlx::query(self.statements().record_audit.text())
                .bind(actor)
                .bind(resolution.action())
                .bind(audited_id(id).as_uuid())
                .bind(&id.as_bytes()[..])
                .execute(&mut *transaction)
                .await
                .map_err(self.could_not("write the audit trail"))?;
        }
        self.commit_seen(transaction).await?;
        Ok(resolved == 1)
    }
}

/// Binds status, headers, body and its state.
fn bind_answer<'q>(
    query: Query<'q, sqlx::MySql, MySqlArguments>,
    answer: &'q Snapshot,
) -> Result<Query<'q, sqlx::MySql, MySqlArguments>> {
    Ok(query
        .bind(i64::from(answer.status))
        .bind(headers_json(answer)?)
        .bind(answer.body.kept().map(|body| &body[..]))
        .bind(answer.body.as_str()))
}

/// A hundred years: a `DATETIME` ends in the year 9999.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

fn micros(time: Duration) -> i64 {
    i64::try_from(time.min(LONGEST).as_nanos().div_ceil(1000)).unwrap_or(i64::MAX)
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.min(LONGEST).as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}
