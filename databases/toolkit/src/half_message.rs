use std::time::Duration;

use bytes::Bytes;
use landfall_core::{
    CheckBack, Decided, DueCheck, Error, ErrorKind, Fingerprint, HalfMessage, HalfMessageDetail, HalfMessageFilter,
    HalfMessageRow, HalfState, HalfVerdict, Message, MessageId, OutboxWriter, Prepared, Result, Timestamp, TopicName,
};
use sqlx::{ColumnIndex, Database, Decode, Encode, QueryBuilder, Row, Type};

/// The actor of a parking in the audit trail.
pub const CHECK_BACK: &str = "check-back";

/// The audit trail's name for a check-back limit that was reached.
pub const HALF_PARK: &str = "half-park";

/// The audit trail's name for a verdict that contradicts the first one.
pub const HALF_CONTRADICTION: &str = "half-contradiction";

/// The audit trail's name for a contradiction that a person has dealt with.
pub const HALF_ACKNOWLEDGE: &str = "half-acknowledge";

/// The audit trail's detail of a decision that arrived before its message.
pub const EARLY: &str = "before the prepare";

/// The longest answer of a check-back that is stored.
const MAX_ANSWER_CHARACTERS: usize = 500;

/// The table of half messages. Every call is one transaction, committed and durable when it returns.
pub trait HalfMessageTable: OutboxWriter {
    /// Inserts a prepared message and returns whether its id was missing.
    fn insert_half(&self, half: &HalfMessage, fingerprint: &Fingerprint) -> impl Future<Output = Result<bool>> + Send;

    /// Adds the message to an early decision, and enqueues it if that was a commit. Returns whether there was an early
    /// decision without a message.
    fn complete_early(
        &self,
        half: &HalfMessage,
        fingerprint: &Fingerprint,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Decides about a message that is prepared or parked, with its audit row, and enqueues it if the verdict is a
    /// commit. Returns whether there was one.
    fn decide_undecided(
        &self,
        id: MessageId,
        verdict: HalfVerdict,
        actor: &str,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Inserts a decision without a message, with its audit row, and returns whether its id was missing.
    fn insert_early(
        &self,
        id: MessageId,
        verdict: HalfVerdict,
        actor: &str,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Records the first contradiction of a final state, with its audit row. A later one changes nothing.
    fn contradict(&self, id: MessageId, verdict: HalfVerdict, actor: &str) -> impl Future<Output = Result<()>> + Send;

    /// Returns what is stored, and what survives a crash of the server.
    fn stored_half(&self, id: MessageId) -> impl Future<Output = Result<Option<StoredHalf>>> + Send;
}

/// What decides about a repeated call.
#[derive(Debug)]
pub struct StoredHalf {
    pub state: HalfState,
    /// `None` for an early decision, which has no message yet.
    pub fingerprint: Option<Vec<u8>>,
}

/// Implements [`HalfMessages::prepare`](landfall_core::HalfMessages::prepare).
pub async fn prepare<D: HalfMessageTable>(
    database: &D,
    half: &HalfMessage,
    fingerprint: &Fingerprint,
) -> Result<Prepared> {
    loop {
        if database.insert_half(half, fingerprint).await? {
            return Ok(Prepared::Fresh(HalfState::Prepared));
        }
        // None: it expired between the two statements.
        let Some(StoredHalf { state, fingerprint: known }) = database.stored_half(half.message.id).await? else {
            continue;
        };
        match known {
            Some(known) if known == fingerprint => return Ok(Prepared::Repeated(state)),
            Some(_) => return Ok(Prepared::Conflict),
            None if database.complete_early(half, fingerprint).await? => {
                if state == HalfState::Committed {
                    database.wake();
                }
                return Ok(Prepared::Fresh(state));
            }
            // Another prepare was faster.
            None => {}
        }
    }
}

/// Implements [`HalfMessages::decide`](landfall_core::HalfMessages::decide).
pub async fn decide<D: HalfMessageTable>(
    database: &D,
    id: MessageId,
    verdict: HalfVerdict,
    actor: &str,
) -> Result<Decided> {
    loop {
        if database.decide_undecided(id, verdict, actor).await? {
            if verdict == HalfVerdict::Committed {
                database.wake();
            }
            return Ok(Decided::Now);
        }
        if database.insert_early(id, verdict, actor).await? {
            return Ok(Decided::Early);
        }
        match database.stored_half(id).await?.map(|stored| stored.state.verdict()) {
            Some(Some(first)) if first == verdict => return Ok(Decided::Before),
            Some(Some(first)) => {
                database.contradict(id, verdict, actor).await?;
                return Ok(Decided::Contradiction(first));
            }
            // It was prepared, or it expired, between the statements.
            Some(None) | None => {}
        }
    }
}

/// Returns an answer as it is stored: shortened, and without NUL, which PostgreSQL refuses.
pub fn storable_answer(answer: &str) -> String {
    let storable = |c| if c == '\0' { char::REPLACEMENT_CHARACTER } else { c };
    answer.chars().take(MAX_ANSWER_CHARACTERS).map(storable).collect()
}

/// Returns check-back targets as they are stored.
pub fn check_back_json(check_back: &CheckBack) -> Result<String> {
    serde_json::to_string(check_back)
        .map_err(|error| Error::invalid("the check-back targets are not JSON").with_source(error))
}

fn check_back(stored: &str) -> Result<CheckBack> {
    serde_json::from_str(stored).map_err(|error| {
        let text = format!("the check-back targets {stored:?} are not Landfall's");
        Error::new(ErrorKind::Corrupt, text).with_source(error)
    })
}

fn undecodable(error: sqlx::Error) -> Error {
    Error::new(ErrorKind::Corrupt, "a half message contains a value that landfall did not write").with_source(error)
}

fn time(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// Decodes `id, state, topic, key, kind, business_type, business_id, check_back, prepared_at, decided_at, decided_by,
/// checks, next_check_at, last_answer, contradicted_at, contradicted_by, acknowledged_at, acknowledged_by`. The id is
/// text, and times are milliseconds.
pub fn half_message_row<R>(row: &R) -> Result<HalfMessageRow>
where
    R: Row,
    for<'r> String: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> i64: Decode<'r, R::Database> + Type<R::Database>,
    for<'i> &'i str: ColumnIndex<R>,
{
    let text = |name: &str| row.try_get::<Option<String>, _>(name).map_err(undecodable);
    let number = |name: &str| row.try_get::<Option<i64>, _>(name).map_err(undecodable);
    Ok(HalfMessageRow {
        id: text("id")?.unwrap_or_default().parse()?,
        state: text("state")?.unwrap_or_default().parse()?,
        topic: text("topic")?.map(TopicName::new).transpose()?,
        key: text("key")?,
        kind: text("kind")?,
        business_type: text("business_type")?.unwrap_or_default(),
        business_id: text("business_id")?.unwrap_or_default(),
        check_back: check_back(&text("check_back")?.unwrap_or_default())?,
        prepared_at: time(number("prepared_at")?.unwrap_or_default()),
        decided_at: number("decided_at")?.map(time),
        decided_by: text("decided_by")?,
        checks: u32::try_from(number("checks")?.unwrap_or_default()).unwrap_or_default(),
        next_check: number("next_check_at")?.map(time),
        last_answer: text("last_answer")?,
        contradicted_at: number("contradicted_at")?.map(time),
        contradicted_by: text("contradicted_by")?,
        acknowledged_at: number("acknowledged_at")?.map(time),
        acknowledged_by: text("acknowledged_by")?,
    })
}

/// Decodes the columns of [`half_message_row`], and `sequence, mode, headers, payload`.
pub fn half_message_detail<R>(row: &R) -> Result<HalfMessageDetail>
where
    R: Row,
    for<'r> String: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> i64: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
    for<'i> &'i str: ColumnIndex<R>,
{
    let text = |name: &str| row.try_get::<Option<String>, _>(name).map_err(undecodable);
    let headers = |stored: String| serde_json::from_str(&stored).unwrap_or(serde_json::Value::String(stored));
    let payload: Option<Vec<u8>> = row.try_get("payload").map_err(undecodable)?;
    Ok(HalfMessageDetail {
        row: half_message_row(row)?,
        sequence: row.try_get("sequence").map_err(undecodable)?,
        mode: text("mode")?,
        headers: text("headers")?.map(headers),
        payload: payload.map(Bytes::from),
    })
}

/// Decodes `business_type, business_id, check_back, check_after_ms, prepared_at, checks` of a row whose message the
/// adapter has decoded.
pub fn due_check<R>(row: &R, message: Message) -> Result<DueCheck>
where
    R: Row,
    for<'r> String: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> i64: Decode<'r, R::Database> + Type<R::Database>,
    for<'i> &'i str: ColumnIndex<R>,
{
    let text = |name: &str| row.try_get::<String, _>(name).map_err(undecodable);
    let number = |name: &str| row.try_get::<i64, _>(name).map_err(undecodable);
    let half = HalfMessage {
        message,
        business_type: text("business_type")?,
        business_id: text("business_id")?,
        check_back: check_back(&text("check_back")?)?,
        check_after: Duration::from_millis(number("check_after_ms")?.unsigned_abs()),
    };
    let checks = u32::try_from(number("checks")?).unwrap_or_default();
    Ok(DueCheck { half, prepared_at: time(number("prepared_at")?), checks })
}

/// Appends a condition for every field of the filter that is set, the order and the limit. Values are bound. `to_id`
/// and `to_time` convert to columns' types.
pub fn push_half_message_filter<DB, I, T>(
    query: &mut QueryBuilder<DB>,
    filter: &HalfMessageFilter,
    limit: usize,
    to_id: impl Fn(MessageId) -> I,
    to_time: impl Fn(Timestamp) -> T,
) where
    DB: Database,
    for<'q> I: Encode<'q, DB> + Type<DB>,
    for<'q> T: Encode<'q, DB> + Type<DB>,
    for<'q> i64: Encode<'q, DB> + Type<DB>,
    for<'q> String: Encode<'q, DB> + Type<DB>,
{
    let HalfMessageFilter { id, state, topic, business_type, business_id, contradicted, before } = filter;
    if let Some(id) = id {
        query.push(" AND h.id = ").push_bind(to_id(*id));
    }
    let texts = [
        ("state", state.map(HalfState::as_str)),
        ("topic", topic.as_ref().map(|topic| topic.as_str())),
        ("business_type", business_type.as_deref()),
        ("business_id", business_id.as_deref()),
    ];
    for (column, value) in texts {
        if let Some(value) = value {
            query.push(format_args!(" AND h.{column} = ")).push_bind(value.to_owned());
        }
    }
    if *contradicted {
        query.push(" AND h.contradicted_at IS NOT NULL");
    }
    if let Some((time, id)) = before {
        query.push(" AND (h.prepared_at, h.id) < (").push_bind(to_time(*time));
        query.push(", ").push_bind(to_id(*id)).push(")");
    }
    query.push(" ORDER BY h.prepared_at DESC, h.id DESC LIMIT ");
    query.push_bind(i64::try_from(limit).unwrap_or(i64::MAX));
}
