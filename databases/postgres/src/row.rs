//! Rows as core's types. Columns are read by name.

use bytes::Bytes;
use landfall_core::adapter::{OutboxEntry, RedriveItem, Shard, StoredError, trace_id};
use landfall_core::{
    DeadLetter, Error, ErrorKind, GroupName, Headers, Key, Kind, Message, OutboxDetail, OutboxRow, Position, Result,
    Timestamp, TopicName,
};
use sqlx::postgres::PgRow;
use sqlx::{ColumnIndex, Decode, Row, Type};
use uuid::Uuid;

use crate::timestamp::TimestampTz;

/// The longest valid topic.
const MAX_TOPIC_CHARACTERS: usize = 249;
/// The longest valid key.
const MAX_KEY_BYTES: usize = 512;
/// The longest error that is stored: enough for a list, where a longer stack trace does not help.
const MAX_ERROR_CHARACTERS: usize = 2000;

/// Makes any text storable: PostgreSQL stores no NUL.
pub(crate) fn storable(text: &str) -> String {
    text.chars().take(MAX_ERROR_CHARACTERS).map(|c| if c == '\0' { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// The positions of an outbox entry's columns. A name is looked up once per result, not once per row.
pub(crate) struct EntryColumns {
    id: usize,
    shard: usize,
    attempts: usize,
    message: MessageColumns,
    flag: usize,
}

impl EntryColumns {
    /// `flag` names the boolean column that [`entry`](Self::entry) returns with each entry.
    pub(crate) fn find(row: &PgRow, flag: &str) -> sqlx::Result<Self> {
        Ok(Self {
            id: "id".index(row)?,
            shard: "shard".index(row)?,
            attempts: "attempts".index(row)?,
            message: MessageColumns::find(row)?,
            flag: flag.index(row)?,
        })
    }

    /// Returns whether the row is the header of a window's rows, not a message.
    pub(crate) fn is_header(&self, row: &PgRow) -> sqlx::Result<bool> {
        Ok(row.try_get::<Option<i64>, _>(self.id)?.is_none())
    }

    /// Returns the entry and its flag. A foreign writer may have stored what cannot be a message; the entry then
    /// contains the error.
    pub(crate) fn entry(&self, row: &PgRow) -> sqlx::Result<(OutboxEntry, bool)> {
        let id: i64 = row.try_get_unchecked(self.id)?;
        let entry = OutboxEntry {
            row: id,
            shard: Shard(row.try_get_unchecked::<i16, _>(self.shard)? as u16),
            attempts: row.try_get_unchecked::<i32, _>(self.attempts)? as u32,
            message_id: row.try_get_unchecked::<Uuid, _>(self.message.id)?.into(),
            message: self.message.message(row).map_err(|error| OutboxEntry::unreadable(id, error)),
        };
        Ok((entry, row.try_get_unchecked(self.flag)?))
    }
}

/// The positions of a message's columns.
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
    fn find(row: &PgRow) -> sqlx::Result<Self> {
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

    /// Values are not compared with their columns' types: the statements fix the types, and comparing them again for
    /// every value took a quarter of the time.
    fn message(&self, row: &PgRow) -> Result<Message> {
        let headers: &str = row.try_get_unchecked(self.headers).map_err(undecodable)?;
        let key: Option<&str> = row.try_get_unchecked(self.key).map_err(undecodable)?;
        Ok(Message {
            id: row.try_get_unchecked::<Uuid, _>(self.id).map_err(undecodable)?.into(),
            topic: TopicName::new(row.try_get_unchecked::<&str, _>(self.topic).map_err(undecodable)?)?,
            key: key.map(Key::new).transpose()?,
            sequence: row.try_get_unchecked(self.sequence).map_err(undecodable)?,
            kind: Kind::new(row.try_get_unchecked::<&str, _>(self.kind).map_err(undecodable)?)?,
            mode: row.try_get_unchecked::<&str, _>(self.mode).map_err(undecodable)?.parse()?,
            headers: if headers == "{}" { Headers::default() } else { Headers::from_json(headers)? },
            payload: self.payload(row)?,
            time: row.try_get_unchecked::<TimestampTz, _>(self.created_at).map_err(undecodable)?.0,
        })
    }

    fn payload(&self, row: &PgRow) -> Result<Bytes> {
        let payload: Option<&[u8]> = row.try_get_unchecked(self.payload).map_err(undecodable)?;
        payload.map(Bytes::copy_from_slice).ok_or_else(|| {
            Error::invalid("both or neither of payload and payload_text are set; set exactly one of them")
        })
    }
}

/// Decodes a row of `next_delayed` or `next_redriven`.
pub(crate) fn redrive_item(row: &PgRow) -> Result<RedriveItem> {
    let id: i64 = column(row, "id")?;
    let columns = MessageColumns::find(row).map_err(undecodable)?;
    let message = columns.message(row).map_err(|error| {
        Error::new(ErrorKind::Corrupt, format!("dead letter {id} is no longer a valid message")).with_source(error)
    })?;
    let (partition, offset) = original_position(row)?;
    let origin = partition.zip(offset).map(|(partition, offset)| Position { partition, offset });
    Ok(RedriveItem { id, message, origin, attempts: count(row, "attempts")?, redrives: count(row, "redrives")? })
}

/// Decodes the message of a row of `half_claim`.
pub(crate) fn half_message(row: &PgRow) -> Result<Message> {
    MessageColumns::find(row).map_err(undecodable)?.message(row)
}

/// Decodes a row of `outbox_list`, or the common columns of `outbox_show`.
pub(crate) fn outbox_row(row: &PgRow) -> Result<OutboxRow> {
    Ok(OutboxRow {
        row: column(row, "id")?,
        message_id: column::<Uuid>(row, "message_id")?.into(),
        topic: legible_topic(column(row, "topic")?)?,
        key: column::<Option<&str>>(row, "key")?.map(legible_key).transpose()?,
        state: column::<&str>(row, "state")?.parse()?,
        attempts: count(row, "attempts")?,
        next_attempt: optional_time(row, "next_attempt_at")?,
        last_error: column(row, "last_error")?,
        created_at: time(row, "created_at")?,
        sent_at: optional_time(row, "sent_at")?,
        payload_bytes: column::<i64>(row, "payload_bytes")? as u64,
    })
}

/// Decodes a row of `outbox_show`.
pub(crate) fn outbox_detail(row: &PgRow) -> Result<OutboxDetail> {
    Ok(OutboxDetail {
        row: outbox_row(row)?,
        sequence: column(row, "sequence")?,
        kind: column(row, "kind")?,
        mode: column(row, "mode")?,
        headers: stored_headers(column(row, "headers")?)?,
        payload: Bytes::copy_from_slice(column(row, "payload")?),
    })
}

/// Decodes a row of `find`.
pub(crate) fn dead_letter(row: &PgRow) -> Result<DeadLetter> {
    let group: &str = column(row, "consumer_group")?;
    let (original_partition, original_offset) = original_position(row)?;
    let stored = StoredError { fingerprint: column(row, "fingerprint")?, causes: column(row, "causes")? };
    let (error_code, error): (String, String) = (column(row, "error_code")?, column(row, "error")?);
    let headers = stored_headers(column(row, "headers")?)?;
    Ok(DeadLetter {
        id: column(row, "id")?,
        message_id: column::<Uuid>(row, "message_id")?.into(),
        group: if group.is_empty() { None } else { Some(GroupName::new(group)?) },
        topic: legible_topic(column(row, "topic")?)?,
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
        first_seen: time(row, "first_seen")?,
        last_attempt: time(row, "last_attempt")?,
        retry_at: optional_time(row, "retry_at")?,
        trace_id: trace_id(&headers),
        headers,
        payload: Bytes::copy_from_slice(column(row, "payload")?),
        original_payload: column::<Option<Vec<u8>>>(row, "original_payload")?.map(Bytes::from),
    })
}

fn column<'r, T: Decode<'r, sqlx::Postgres> + Type<sqlx::Postgres>>(row: &'r PgRow, name: &str) -> Result<T> {
    row.try_get(name).map_err(undecodable)
}

fn count(row: &PgRow, name: &str) -> Result<u32> {
    Ok(column::<i32>(row, name)? as u32)
}

fn time(row: &PgRow, name: &str) -> Result<Timestamp> {
    Ok(column::<TimestampTz>(row, name)?.0)
}

fn optional_time(row: &PgRow, name: &str) -> Result<Option<Timestamp>> {
    Ok(column::<Option<TimestampTz>>(row, name)?.map(|time| time.0))
}

/// The columns are signed and a broker's numbers are not; the bits come back as they were.
fn original_position(row: &PgRow) -> Result<(Option<u32>, Option<u64>)> {
    let partition: Option<i32> = column(row, "original_partition")?;
    let offset: Option<i64> = column(row, "original_offset")?;
    Ok((partition.map(|partition| partition as u32), offset.map(|offset| offset as u64)))
}

fn stored_headers(text: &str) -> Result<serde_json::Value> {
    serde_json::from_str(text)
        .map_err(|error| Error::new(ErrorKind::Corrupt, "stored headers are not JSON").with_source(error))
}

/// A key as lists show it. A foreign writer's key can be invalid, which is why its message was parked: control
/// characters appear as `?`, and a longer text is cut. The database keeps and compares what was stored.
fn legible_key(text: &str) -> Result<Key> {
    let legible = text.replace(char::is_control, "?");
    let end = legible.floor_char_boundary(MAX_KEY_BYTES);
    Key::new(if legible.is_empty() { "?" } else { &legible[..end] })
}

/// A topic as lists show it. Invalid characters appear as `_`, because a topic cannot contain `?`.
fn legible_topic(text: &str) -> Result<TopicName> {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let legible: String = text.chars().take(MAX_TOPIC_CHARACTERS).map(|c| if is_valid(c) { c } else { '_' }).collect();
    TopicName::new(text).or_else(|_| TopicName::new(legible)).or_else(|_| TopicName::new("_"))
}

pub(crate) fn undecodable(error: sqlx::Error) -> Error {
    Error::new(ErrorKind::Internal, "a column does not have the type that this build expects").with_source(error)
}
