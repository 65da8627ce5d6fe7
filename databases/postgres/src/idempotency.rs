//! Idempotency records: claims, fencing, answers and tokens. The rules are core's, and the loop is the toolkit's.

use std::time::Duration;

use async_trait::async_trait;
use landfall_core::idempotency::{
    Claim, Epoch, Fingerprint, IdempotencyRecords, Identity, OneTimeTokens, Opened, Outcome, RecordFilter, RecordId,
    RecordRow, RecordStats, RecordWriter, Resolution, Settled, Snapshot, StoredRecord, Terms, settled,
};
use landfall_core::{Result, Timestamp};
use landfall_sql_toolkit::{
    RecordTable, audited_id, claim_record, headers_json, no_open_record, open_record, push_record_filter, record_row,
    storable_answer, stored_record,
};
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres as Server, QueryBuilder, Row};

use crate::housekeeping::seconds;
use crate::statements::Sql;
use crate::timestamp::TimestampTz;
use crate::{Postgres, row};

const CLAIM: &str = "claim an idempotency record";
const READ: &str = "read an idempotency record";
const SETTLE: &str = "settle an idempotency record";

#[async_trait]
impl IdempotencyRecords for Postgres {
    async fn claim_record(&self, identity: &Identity, fingerprint: &Fingerprint, terms: &Terms) -> Result<Claim> {
        claim_record(self, identity, fingerprint, terms).await
    }

    async fn renew_record(&self, identity: &Identity, epoch: Epoch, lease: Duration) -> Result<Option<Duration>> {
        let id = identity.id();
        let query = self
            .query_scalar(&self.statements().record_renew)
            .bind(id.as_bytes().to_vec())
            .bind(epoch)
            .bind(seconds(lease));
        let remaining: Vec<i64> = self.values("renew an idempotency record", query).await?;
        Ok(remaining.first().map(|millis| Duration::from_millis(millis.unsigned_abs())))
    }

    async fn settle_record(&self, identity: &Identity, epoch: Epoch, outcome: &Outcome) -> Result<Settled> {
        let (sql, id) = (self.statements(), identity.id());
        let about = |statement: &Sql| self.query(statement).bind(id.as_bytes().to_vec()).bind(epoch);
        let query = match outcome {
            Outcome::Done(answer) => bind_answer(about(&sql.record_complete), answer)?,
            Outcome::NothingDone => about(&sql.record_release),
            Outcome::Unknown(reason) => about(&sql.record_unknown).bind(storable_answer(reason)),
        };
        let mut session = self.session().await?;
        let changed = query.execute(session.connection()).await.map_err(self.could_not(SETTLE))?.rows_affected();
        session.finish().await.map_err(self.could_not(SETTLE))?;
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
        let query = self
            .query_scalar(&self.statements().record_resolve)
            .bind(id.as_bytes().to_vec())
            .bind(state)
            .bind(answer.map(|answer| i32::from(answer.status)))
            .bind(headers)
            .bind(answer.and_then(|answer| answer.body.kept()).map(|body| body.to_vec()))
            .bind(answer.map(|answer| answer.body.as_str()))
            .bind(row::storable(actor))
            .bind(resolution.action())
            .bind(audited_id(id).as_uuid());
        let resolved: i64 = self.value("resolve an idempotency record", query).await?;
        Ok(resolved == 1)
    }

    async fn find_records(&self, filter: &RecordFilter, limit: usize) -> Result<Vec<RecordRow>> {
        let mut query = QueryBuilder::new(self.statements().records.as_str());
        push_record_filter(&mut query, filter, limit, "key", TimestampTz);
        let rows = self.rows("find idempotency records", query.build().persistent(false)).await?;
        rows.iter().map(record_row).collect()
    }

    async fn record_stats(&self) -> Result<RecordStats> {
        let doing = "count idempotency records";
        let row = self.row(doing, self.query(&self.statements().record_stats)).await?;
        let count = |column: usize| row.try_get::<i64, _>(column).map(i64::unsigned_abs).map_err(self.could_not(doing));
        Ok(RecordStats { in_flight: count(0)?, uncertain: count(1)?, oldest_uncertain_seconds: count(2)? })
    }
}

#[async_trait]
impl OneTimeTokens for Postgres {
    async fn issue_token(&self, identity: &Identity, ttl: Duration) -> Result<Timestamp> {
        let id = identity.id();
        let query = self
            .query_scalar(&self.statements().token_issue)
            .bind(id.as_bytes().to_vec())
            .bind(identity.kind().as_str())
            .bind(identity.scope().as_str())
            .bind(identity.business_type())
            .bind(identity.key())
            .bind(seconds(ttl));
        let expires_at: i64 = self.value("issue a token", query).await?;
        Ok(Timestamp::from_millis(expires_at))
    }
}

impl RecordTable for Postgres {
    async fn insert_record(
        &self,
        connection: &mut PgConnection,
        identity: &Identity,
        fingerprint: &Fingerprint,
        terms: &Terms,
    ) -> Result<Option<Epoch>> {
        let id = identity.id();
        self.query_scalar(&self.statements().record_insert)
            .bind(&id.as_bytes()[..])
            .bind(identity.kind().as_str())
            .bind(identity.scope().as_str())
            .bind(identity.business_type())
            .bind(identity.key())
            .bind(&fingerprint[..])
            .bind(terms.on_unknown.is_uncertain())
            .bind(seconds(terms.lease))
            .bind(seconds(terms.ceiling))
            .fetch_optional(connection)
            .await
            .map_err(self.could_not(CLAIM))
    }

    async fn take_over_record(
        &self,
        connection: &mut PgConnection,
        id: RecordId,
        seen: &StoredRecord,
        fingerprint: &Fingerprint,
        terms: &Terms,
    ) -> Result<Option<Epoch>> {
        self.query_scalar(&self.statements().record_take_over)
            .bind(&id.as_bytes()[..])
            .bind(seen.epoch)
            .bind(seen.state.as_str())
            .bind(&fingerprint[..])
            .bind(terms.on_unknown.is_uncertain())
            .bind(seconds(terms.lease))
            .bind(seconds(terms.ceiling))
            .fetch_optional(connection)
            .await
            .map_err(self.could_not(CLAIM))
    }

    async fn stored_record(&self, connection: &mut PgConnection, id: RecordId) -> Result<Option<StoredRecord>> {
        let query = self.query(&self.statements().record_stored).bind(&id.as_bytes()[..]);
        let found = query.fetch_optional(connection).await.map_err(self.could_not(READ))?;
        found.as_ref().map(stored_record).transpose()
    }

    async fn peek_record(&self, id: RecordId) -> Result<Option<StoredRecord>> {
        let query = self.query(&self.statements().record_stored).bind(&id.as_bytes()[..]);
        self.rows(READ, query).await?.first().map(stored_record).transpose()
    }
}

impl RecordWriter for Postgres {
    async fn open_record(
        &self,
        connection: &mut PgConnection,
        identity: &Identity,
        fingerprint: &Fingerprint,
    ) -> Result<Opened> {
        open_record(self, connection, identity, fingerprint).await
    }

    async fn store_answer(&self, connection: &mut PgConnection, identity: &Identity, answer: &Snapshot) -> Result<()> {
        let id = identity.id();
        let query = self.query(&self.statements().record_answer).bind(id.as_bytes().to_vec());
        let stored = bind_answer(query, answer)?.execute(connection).await.map_err(self.could_not(SETTLE))?;
        if stored.rows_affected() == 1 { Ok(()) } else { Err(no_open_record(identity)) }
    }
}

/// Binds status, headers, body and its state.
fn bind_answer<'q>(
    query: Query<'q, Server, PgArguments>,
    answer: &'q Snapshot,
) -> Result<Query<'q, Server, PgArguments>> {
    Ok(query
        .bind(i32::from(answer.status))
        .bind(headers_json(answer)?)
        .bind(answer.body.kept().map(|body| &body[..]))
        .bind(answer.body.as_str()))
}
