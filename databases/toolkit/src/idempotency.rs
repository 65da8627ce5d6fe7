//! Idempotency records: what the SQL adapters share. The rules are core's; a write compares state and epoch.

use std::time::Duration;

use bytes::Bytes;
use landfall_core::idempotency::{
    Body, Claim, Decision, Epoch, Fingerprint, Identity, IdentityKind, OnUnknown, Opened, RecordFilter, RecordId,
    RecordRow, RecordState, Snapshot, StoredRecord, Terms, decide,
};
use landfall_core::{Database, Error, ErrorKind, MessageId, Result, Timestamp};
use sqlx::{ColumnIndex, Decode, Encode, QueryBuilder, Row, Type};

/// The table of records, in a transaction.
pub trait RecordTable: Database {
    /// Inserts a record in flight, and returns its epoch if its id was missing. Waits for a transaction that inserts
    /// the same id.
    fn insert_record(
        &self,
        connection: &mut Self::Connection,
        identity: &Identity,
        fingerprint: &Fingerprint,
        terms: &Terms,
    ) -> impl Future<Output = Result<Option<Epoch>>> + Send;

    /// Begins the next attempt, and returns its epoch, unless the record has changed since it was read.
    fn take_over_record(
        &self,
        connection: &mut Self::Connection,
        id: RecordId,
        seen: &StoredRecord,
        fingerprint: &Fingerprint,
        terms: &Terms,
    ) -> impl Future<Output = Result<Option<Epoch>>> + Send;

    fn stored_record(
        &self,
        connection: &mut Self::Connection,
        id: RecordId,
    ) -> impl Future<Output = Result<Option<StoredRecord>>> + Send;

    /// Returns what is stored without a transaction, and what survives a crash of the server.
    fn peek_record(&self, id: RecordId) -> impl Future<Output = Result<Option<StoredRecord>>> + Send;
}

/// Implements [`IdempotencyRecords::claim_record`](landfall_core::idempotency::IdempotencyRecords::claim_record).
pub async fn claim_record<D: RecordTable>(
    database: &D,
    identity: &Identity,
    fingerprint: &Fingerprint,
    terms: &Terms,
) -> Result<Claim> {
    let id = identity.id();
    loop {
        // A replay is one read. Every write below compares what was read here.
        let seen = database.peek_record(id).await?;
        let decision = seen.as_ref().map(|seen| decide(seen, fingerprint));
        if let Some(Decision::Answer(claim)) = decision {
            return Ok(claim);
        }
        if seen.is_none() && identity.kind() == IdentityKind::Token {
            return Ok(Claim::NotIssued);
        }
        let mut transaction = database.begin().await?;
        let claimed = match &seen {
            None => database.insert_record(&mut transaction, identity, fingerprint, terms).await?,
            Some(seen) => database.take_over_record(&mut transaction, id, seen, fingerprint, terms).await?,
        };
        if let Some(epoch) = claimed {
            database.commit(transaction).await?;
            return Ok(Claim::Claimed { epoch });
        }
        // Another claim was faster. Rolled back before the next read, which may be on the same connection.
        database.flush(transaction).await?;
    }
}

/// The terms of a record in the caller's transaction. A row that was committed without an answer counts as uncertain.
const ENCLOSED: Terms = Terms { lease: Duration::ZERO, ceiling: Duration::ZERO, on_unknown: OnUnknown::Uncertain };

/// Implements [`RecordWriter::open_record`](landfall_core::idempotency::RecordWriter::open_record).
pub async fn open_record<D: RecordTable>(
    database: &D,
    connection: &mut D::Connection,
    identity: &Identity,
    fingerprint: &Fingerprint,
) -> Result<Opened> {
    let id = identity.id();
    // More than two rounds need a third party that removes or releases the record meanwhile.
    for _ in 0..8 {
        let is_token = identity.kind() == IdentityKind::Token;
        if !is_token && database.insert_record(connection, identity, fingerprint, &ENCLOSED).await?.is_some() {
            return Ok(Opened::Fresh);
        }
        let Some(seen) = database.stored_record(connection, id).await? else {
            if is_token {
                return Ok(Opened::Refused(Claim::NotIssued));
            }
            continue;
        };
        match decide(&seen, fingerprint) {
            Decision::Answer(claim) => return Ok(Opened::Refused(claim)),
            Decision::TakeOver => {
                if database.take_over_record(connection, id, &seen, fingerprint, &ENCLOSED).await?.is_some() {
                    return Ok(Opened::Fresh);
                }
            }
        }
    }
    Ok(Opened::Refused(Claim::InFlight { remaining: Duration::ZERO }))
}

/// For an answer that found no open record of its transaction.
pub fn no_open_record(identity: &Identity) -> Error {
    let text = format!("no transaction has opened the idempotency record {identity}; call open_record first");
    Error::new(ErrorKind::Conflict, text)
}

/// Returns the headers of an answer as they are stored: pairs, so that repeated names keep their order.
pub fn headers_json(answer: &Snapshot) -> Result<String> {
    serde_json::to_string(&answer.headers)
        .map_err(|error| Error::invalid("the headers of an answer are not JSON").with_source(error))
}

/// The id under which the audit trail has the actions on a record.
pub fn audited_id(id: RecordId) -> MessageId {
    MessageId::from_business("idempotency record", &id.to_string())
}

fn corrupt(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, text)
}

fn undecodable(error: sqlx::Error) -> Error {
    corrupt("an idempotency record contains a value that landfall did not write").with_source(error)
}

/// Decodes `state, epoch, fingerprint, parks, remaining, status, headers, body, body_state`. `parks` is a number, and
/// `remaining` are milliseconds.
pub fn stored_record<R>(row: &R) -> Result<StoredRecord>
where
    R: Row,
    for<'r> String: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> i64: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
    for<'i> &'i str: ColumnIndex<R>,
{
    let number = |name: &str| row.try_get::<i64, _>(name).map_err(undecodable);
    let fingerprint: Option<Vec<u8>> = row.try_get("fingerprint").map_err(undecodable)?;
    let fingerprint = fingerprint
        .map(|bytes| {
            bytes.try_into().map_err(|_| corrupt("the fingerprint of an idempotency record has a wrong length"))
        })
        .transpose()?;
    let state: RecordState = row.try_get::<String, _>("state").map_err(undecodable)?.parse()?;
    Ok(StoredRecord {
        state,
        epoch: number("epoch")?,
        fingerprint,
        parks: number("parks")? != 0,
        remaining: Duration::from_millis(u64::try_from(number("remaining")?).unwrap_or_default()),
        answer: if state == RecordState::Completed { answer(row)? } else { None },
    })
}

/// Returns `None` for a record without a stored answer.
fn answer<R>(row: &R) -> Result<Option<Snapshot>>
where
    R: Row,
    for<'r> String: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> i64: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
    for<'i> &'i str: ColumnIndex<R>,
{
    let Some(status) = row.try_get::<Option<i64>, _>("status").map_err(undecodable)? else { return Ok(None) };
    let status = u16::try_from(status).map_err(|_| corrupt(format!("the stored status {status} is none")))?;
    let body = match row.try_get::<Option<String>, _>("body_state").map_err(undecodable)?.as_deref() {
        Some("not_kept") => Body::NotKept,
        Some("expired") => Body::Expired,
        _ => {
            Body::Kept(Bytes::from(row.try_get::<Option<Vec<u8>>, _>("body").map_err(undecodable)?.unwrap_or_default()))
        }
    };
    let headers = match row.try_get::<Option<String>, _>("headers").map_err(undecodable)? {
        Some(text) => serde_json::from_str(&text)
            .map_err(|error| corrupt("the stored headers are not Landfall's").with_source(error))?,
        None => Vec::new(),
    };
    Ok(Some(Snapshot { status, headers, body }))
}

/// Decodes `id, kind, scope, business_type, key, state, epoch, parks, claimed_at, updated_at, expires_at, status,
/// body_state, body_bytes, reason`. The id is hexadecimal, and times are milliseconds.
pub fn record_row<R>(row: &R) -> Result<RecordRow>
where
    R: Row,
    for<'r> String: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> i64: Decode<'r, R::Database> + Type<R::Database>,
    for<'i> &'i str: ColumnIndex<R>,
{
    let text = |name: &str| row.try_get::<String, _>(name).map_err(undecodable);
    let number = |name: &str| row.try_get::<Option<i64>, _>(name).map_err(undecodable);
    let time = |name: &str| number(name).map(|millis| Timestamp::from_millis(millis.unwrap_or_default()));
    Ok(RecordRow {
        id: text("id")?.parse()?,
        kind: text("kind")?.parse()?,
        scope: text("scope")?.parse()?,
        business_type: text("business_type")?,
        key: text("key")?,
        state: text("state")?.parse()?,
        epoch: number("epoch")?.unwrap_or_default(),
        on_unknown: (number("parks")?.unwrap_or_default() != 0).into(),
        claimed_at: time("claimed_at")?,
        updated_at: time("updated_at")?,
        expires_at: number("expires_at")?.map(Timestamp::from_millis),
        status: number("status")?.and_then(|status| u16::try_from(status).ok()),
        body: row.try_get("body_state").map_err(undecodable)?,
        body_bytes: number("body_bytes")?.map(i64::unsigned_abs),
        reason: row.try_get("reason").map_err(undecodable)?,
    })
}

/// Appends a condition for every field of the filter that is set, the order and the limit. Values are bound. `key` is
/// the quoted name of that column, and `to_time` converts to the type of times.
pub fn push_record_filter<DB, T>(
    query: &mut QueryBuilder<DB>,
    filter: &RecordFilter,
    limit: usize,
    key: &str,
    to_time: impl Fn(Timestamp) -> T,
) where
    DB: sqlx::Database,
    for<'q> T: Encode<'q, DB> + Type<DB>,
    for<'q> i64: Encode<'q, DB> + Type<DB>,
    for<'q> String: Encode<'q, DB> + Type<DB>,
    for<'q> Vec<u8>: Encode<'q, DB> + Type<DB>,
{
    let RecordFilter { id, kind, state, scope, business_type, key: wanted_key, before } = filter;
    if let Some(id) = id {
        query.push(" AND r.id = ").push_bind(id.as_bytes().to_vec());
    }
    if matches!(state, Some(RecordState::InFlight | RecordState::Uncertain)) {
        // An index has these; the state that people see is computed.
        query.push(" AND r.stored_state IN ('in_flight', 'uncertain')");
    }
    let texts = [
        ("kind", kind.map(IdentityKind::as_str)),
        ("state", state.map(RecordState::as_str)),
        ("scope", scope.as_ref().map(|scope| scope.as_str())),
        ("business_type", business_type.as_deref()),
        (key, wanted_key.as_deref()),
    ];
    for (column, value) in texts {
        if let Some(value) = value {
            query.push(format_args!(" AND r.{column} = ")).push_bind(value.to_owned());
        }
    }
    if let Some((time, id)) = before {
        query.push(" AND (r.claimed_at, r.id) < (").push_bind(to_time(*time));
        query.push(", ").push_bind(id.as_bytes().to_vec()).push(")");
    }
    query.push(" ORDER BY r.claimed_at DESC, r.id DESC LIMIT ");
    query.push_bind(i64::try_from(limit).unwrap_or(i64::MAX));
}
