//! Rows as core's types. Columns are read by name.

use bytes::Bytes;
use landfall_core::adapter::{OutboxEntry, RedriveItem, Shard, StoredError, trace_id};
use landfall_core::{
    DeadLetter, Error, ErrorKind, GroupName, Headers, Key, Kind, Message, OutboxDetail, OutboxRow, Position, Result,
    Timestamp, TopicName,
};
use sqlx::mysql::MySqlRow;
use sqlx::{ColumnIndex, Decode, MySql as Server, Row, Type};
use uuid::Uuid;

/// The longest error that is stored: enough for a list, where a longer stack trace does not help.
const MAX_ERROR_CHARACTERS: usize = 2000;

/// Cuts a text to the length of its column.
pub(crate) fn storable(text: &str) -> String {
    text.chars().take(MAX_ERROR_CHARACTERS).collect()
}

/// Cuts an actor's name to the length of its column in the audit trail.
pub(crate) fn actor(name: &str) -> String {
    name.chars().take(300).collect()
}

/// Decodes the rows of `next` or `claim`. A foreign writer may have stored what cannot be a message; the entry then
/// contains the error.
pub(crate) fn entries(rows: &[MySqlRow]) -> sqlx::Result<Vec<OutboxEntry>> {
    let Some(first) = rows.first() else { return Ok(Vec::new()) };
    let (id, shard, attempts) = ("id".index(first)?, "shard".index(first)?, "attempts".index(first)?);
    let message = MessageColumns::find(first)?;
    let entry = |row: &MySqlRow| {
        let id: i64 = row.try_get(id)?;
        Ok(OutboxEntry {
            row: id,
            shard: Shard(row.try_get::<i8, _>(shard)? as u16),
            attempts: row.try_get::<i32, _>(attempts)?.max(0) as u32,
            message_id: row.try_get::<Uuid, _>(message.id)?.into(),
            message: message.message(row).map_err(|error| OutboxEntry::unreadable(id, error)),
        })
    };
    rows.iter().map(entry).collect()
}

/// Decodes a row of `next_delayed` or `next_redriven`.
pub(crate) fn redrive_item(row: &MySqlRow) -> Result<RedriveItem> {
    let id: i64 = column(row, "id")?;
    let columns = MessageColumns::find(row).map_err(undecodable)?;
    let message = columns.message(row).map_err(|error| {
        let sentence = format!("dead letter {id} is no longer a valid message");
        Error::new(ErrorKind::Corrupt, sentence).with_source(error)
    })?;
    let (partition, offset) = original_position(row)?;
    let origin = partition.zip(offset).map(|(partition, offset)| Position { partition, offset });
    Ok(RedriveItem { id, message, origin, attempts: count(row, "attempts")?, redrives: count(row, "redrives")? })
}

/// The positions of a message's columns. A name is looked up once per result, not once per row.
struct MessageColumns {
    id: usize,
    topic: usize,
    key: usize,
    sequence: usize,
    kind: usize,
    mode: usize,
    headers: usize,
    payload: usize,
    created_at: usize,
}

impl MessageColumns {
    fn find(row: &MySqlRow) -> sqlx::Result<Self> {
        Ok(Self {
            id: "message_id".index(row)?,
            topic: "topic".index(row)?,
            key: "key".index(row)?,
            sequence: "sequence".index(row)?,
            kind: "kind".index(row)?,
            mode: "mode".index(row)?,
            headers: "headers".index(row)?,
            payload: "payload".index(row)?,
            created_at: "created_at".index(row)?,
        })
    }

    fn message(&self, row: &MySqlRow) -> Result<Message> {
        let headers: &str = column(row, self.headers)?;
        let created_at: Option<i64> = column(row, self.created_at)?;
        Ok(Message {
            id: column::<Uuid>(row, self.id)?.into(),
            topic: TopicName::new(column::<&str>(row, self.topic)?)?,
            key: column::<Option<&str>>(row, self.key)?.map(Key::new).transpose()?,
            sequence: column(row, self.sequence)?,
            kind: Kind::new(column::<&str>(row, self.kind)?)?,
            mode: column::<&str>(row, self.mode)?.parse()?,
            headers: if headers == "{}" { Headers::default() } else { Headers::from_json(headers)? },
            payload: Bytes::copy_from_slice(column(row, self.payload)?),
            // A session that is not strict can store an invalid date.
            time: created_at.map(Timestamp::from_millis).ok_or_else(|| Error::invalid("created_at is not a date"))?,
        })
    }
}

/// Decodes the message of a row of `half_due`.
pub(crate) fn half_message(row: &MySqlRow) -> Result<Message> {
    MessageColumns::find(row).map_err(undecodable)?.message(row)
}

/// Decodes a row of `outbox_rows`, `parked_rows` or `sent_rows`.
pub(crate) fn outbox_row(row: &MySqlRow) -> Result<OutboxRow> {
    Ok(OutboxRow {
        row: column(row, "id")?,
        message_id: column::<Uuid>(row, "message_id")?.into(),
        topic: TopicName::new(column::<&str>(row, "topic")?)?,
        key: column::<Option<&str>>(row, "key")?.map(legible_key).transpose()?,
        state: column::<&str>(row, "state")?.parse()?,
        attempts: count(row, "attempts")?,
        next_attempt: time(row, "next_attempt_at")?,
        last_error: column(row, "last_error")?,
        created_at: time(row, "created_at")?.unwrap_or(Timestamp::from_millis(0)),
        sent_at: time(row, "sent_at")?,
        payload_bytes: column::<i64>(row, "payload_bytes")?.unsigned_abs(),
    })
}

/// Decodes a row of `outbox_details`, `parked_details` or `sent_details`.
pub(crate) fn outbox_detail(row: &MySqlRow) -> Result<OutboxDetail> {
    let headers: &str = column(row, "headers")?;
    Ok(OutboxDetail {
        row: outbox_row(row)?,
        sequence: column(row, "sequence")?,
        kind: column(row, "kind")?,
        mode: column(row, "mode")?,
        headers: legible_headers(headers),
        payload: Bytes::copy_from_slice(column(row, "payload")?),
    })
}

/// Decodes a row of `find`.
pub(crate) fn dead_letter(row: &MySqlRow) -> Result<DeadLetter> {
    let group: &str = column(row, "consumer_group")?;
    let (original_partition, original_offset) = original_position(row)?;
    let stored = StoredError { fingerprint: column(row, "fingerprint")?, causes: column(row, "causes")? };
    let (error_code, error): (String, String) = (column(row, "error_code")?, column(row, "error")?);
    let headers = legible_headers(column(row, "headers")?);
    Ok(DeadLetter {
        id: column(row, "id")?,
        message_id: column::<Uuid>(row, "message_id")?.into(),
        group: if group.is_empty() { None } else { Some(GroupName::new(group)?) },
        topic: TopicName::new(column::<&str>(row, "topic")?)?,
        key: column::<Option<&str>>(row, "key")?.map(legible_key).transpose()?,
        sequence: column(row, "sequence")?,
        kind: column(row, "kind")?,
        status: column::<&str>(row, "status")?.parse()?,
        fingerprint: stored.fingerprint(&error_code, &error),
        causes: stored.causes(),
        error_code,
        error,
        attempts: count(row, "attempts")?,
        redrives: count(row, "redrives")?,
        original_partition,
        original_offset,
        first_seen: time(row, "first_seen")?.unwrap_or(Timestamp::from_millis(0)),
        last_attempt: time(row, "last_attempt")?.unwrap_or(Timestamp::from_millis(0)),
        retry_at: time(row, "retry_at")?,
        trace_id: trace_id(&headers),
        headers,
        payload: Bytes::copy_from_slice(column(row, "payload")?),
        original_payload: column::<Option<Vec<u8>>>(row, "original_payload")?.map(Bytes::from),
    })
}

/// The column of the offset is signed and a broker's number is not; the bits come back as they were.
fn original_position(row: &MySqlRow) -> Result<(Option<u32>, Option<u64>)> {
    let partition: Option<i64> = column(row, "original_partition")?;
    let offset: Option<i64> = column(row, "original_offset")?;
    Ok((partition.and_then(|partition| u32::try_from(partition).ok()), offset.map(|offset| offset as u64)))
}

fn count(row: &MySqlRow, name: &str) -> Result<u32> {
    Ok(u32::try_from(column::<i32>(row, name)?).unwrap_or_default())
}

fn time(row: &MySqlRow, name: &str) -> Result<Option<Timestamp>> {
    Ok(column::<Option<i64>>(row, name)?.map(Timestamp::from_millis))
}

/// A key as lists show it. A foreign writer's key can contain control characters, which is why its message was parked:
/// they appear as `?`. The database keeps and compares what was stored.
fn legible_key(text: &str) -> Result<Key> {
    Key::new(text.replace(char::is_control, "?"))
}

fn legible_headers(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

/// Reads a column by its name or its position.
fn column<'r, T: Decode<'r, Server> + Type<Server>>(row: &'r MySqlRow, index: impl ColumnIndex<MySqlRow>) -> Result<T> {
    row.try_get(index).map_err(undecodable)
}

fn undecodable(error: sqlx::Error) -> Error {
    Error::new(ErrorKind::Internal, "a column does not have the type that this build expects").with_source(error)
}
