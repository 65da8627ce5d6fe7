//! Rows as core's types.

use bytes::Bytes;
use landfall_core::adapter::{OutboxEntry, RedriveItem, Shard};
use landfall_core::{
    DeadLetter, Error, ErrorKind, GroupName, Headers, Key, Kind, Message, OutboxDetail, OutboxRow, Position, Result,
    Timestamp, TopicName,
};
use sqlx::mysql::MySqlRow;
use sqlx::{Decode, MySql as Server, Row, Type};
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

/// Decodes a row of `next` or `claim`. A foreign writer may have stored what cannot be a message; the entry then
/// contains the error.
pub(crate) fn entry(row: &MySqlRow) -> sqlx::Result<OutboxEntry> {
    let id: i64 = row.try_get(0)?;
    Ok(OutboxEntry {
        row: id,
        shard: Shard(row.try_get::<i8, _>(1)? as u16),
        attempts: row.try_get::<i32, _>(2)?.max(0) as u32,
        message_id: row.try_get::<Uuid, _>(3)?.into(),
        message: message(row, 3).map_err(|error| OutboxEntry::unreadable(id, error)),
    })
}

/// Decodes a row of `next_delayed` or `next_redriven`.
pub(crate) fn redrive_item(row: &MySqlRow) -> Result<RedriveItem> {
    let id: i64 = column(row, 0)?;
    let message = message(row, 2).map_err(|error| {
        let sentence = format!("dead letter {id} is no longer a valid message");
        Error::new(ErrorKind::Corrupt, sentence).with_source(error)
    })?;
    let (partition, offset) = original_position(row, 12)?;
    let origin = partition.zip(offset).map(|(partition, offset)| Position { partition, offset });
    Ok(RedriveItem { id, message, origin, attempts: count(column(row, 1)?), redrives: count(column(row, 11)?) })
}

/// Decodes the nine columns of a message, which start at `at`.
fn message(row: &MySqlRow, at: usize) -> Result<Message> {
    let headers: &str = column(row, at + 6)?;
    let created_at: Option<i64> = column(row, at + 8)?;
    Ok(Message {
        id: column::<Uuid>(row, at)?.into(),
        topic: TopicName::new(column::<&str>(row, at + 1)?)?,
        key: column::<Option<&str>>(row, at + 2)?.map(Key::new).transpose()?,
        sequence: column(row, at + 3)?,
        kind: Kind::new(column::<&str>(row, at + 4)?)?,
        mode: column::<&str>(row, at + 5)?.parse()?,
        headers: if headers == "{}" { Headers::default() } else { Headers::from_json(headers)? },
        payload: Bytes::copy_from_slice(column(row, at + 7)?),
        // A session that is not strict can store an invalid date.
        time: created_at.map(Timestamp::from_millis).ok_or_else(|| Error::invalid("created_at is not a date"))?,
    })
}

/// Decodes a row of `outbox_rows`, `parked_rows` or `sent_rows`.
pub(crate) fn outbox_row(row: &MySqlRow) -> Result<OutboxRow> {
    Ok(OutboxRow {
        row: column(row, 0)?,
        message_id: column::<Uuid>(row, 1)?.into(),
        topic: TopicName::new(column::<&str>(row, 2)?)?,
        key: column::<Option<&str>>(row, 3)?.map(legible_key).transpose()?,
        state: column::<&str>(row, 4)?.parse()?,
        attempts: count(column(row, 5)?),
        next_attempt: time(row, 6)?,
        last_error: column(row, 7)?,
        created_at: time(row, 8)?.unwrap_or(Timestamp::from_millis(0)),
        sent_at: time(row, 9)?,
        payload_bytes: column::<i64>(row, 10)?.unsigned_abs(),
    })
}

/// Decodes a row of `outbox_details`, `parked_details` or `sent_details`.
pub(crate) fn outbox_detail(row: &MySqlRow) -> Result<OutboxDetail> {
    let headers: &str = column(row, 14)?;
    Ok(OutboxDetail {
        row: outbox_row(row)?,
        sequence: column(row, 11)?,
        kind: column(row, 12)?,
        mode: column(row, 13)?,
        headers: legible_headers(headers),
        payload: Bytes::copy_from_slice(column(row, 15)?),
    })
}

/// Decodes a row of `find`.
pub(crate) fn dead_letter(row: &MySqlRow) -> Result<DeadLetter> {
    let group: &str = column(row, 2)?;
    let (original_partition, original_offset) = original_position(row, 12)?;
    Ok(DeadLetter {
        id: column(row, 0)?,
        message_id: column::<Uuid>(row, 1)?.into(),
        group: if group.is_empty() { None } else { Some(GroupName::new(group)?) },
        topic: TopicName::new(column::<&str>(row, 3)?)?,
        key: column::<Option<&str>>(row, 4)?.map(legible_key).transpose()?,
        sequence: column(row, 5)?,
        kind: column(row, 6)?,
        status: column::<&str>(row, 7)?.parse()?,
        error_code: column(row, 8)?,
        error: column(row, 9)?,
        attempts: count(column(row, 10)?),
        redrives: count(column(row, 11)?),
        original_partition,
        original_offset,
        first_seen: time(row, 14)?.unwrap_or(Timestamp::from_millis(0)),
        last_attempt: time(row, 15)?.unwrap_or(Timestamp::from_millis(0)),
        retry_at: time(row, 18)?,
        headers: legible_headers(column(row, 16)?),
        payload: Bytes::copy_from_slice(column(row, 17)?),
    })
}

/// The column of the offset is signed and a broker's number is not; the bits come back as they were.
fn original_position(row: &MySqlRow, at: usize) -> Result<(Option<u32>, Option<u64>)> {
    let (partition, offset): (Option<i64>, Option<i64>) = (column(row, at)?, column(row, at + 1)?);
    Ok((partition.and_then(|partition| u32::try_from(partition).ok()), offset.map(|offset| offset as u64)))
}

fn count(stored: i32) -> u32 {
    u32::try_from(stored).unwrap_or_default()
}

fn time(row: &MySqlRow, at: usize) -> Result<Option<Timestamp>> {
    Ok(column::<Option<i64>>(row, at)?.map(Timestamp::from_millis))
}

/// A key as lists show it. A foreign writer's key can contain control characters, which is why its message was parked:
/// they appear as `?`. The database keeps and compares what was stored.
fn legible_key(text: &str) -> Result<Key> {
    Key::new(text.replace(char::is_control, "?"))
}

fn legible_headers(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

fn column<'r, T: Decode<'r, Server> + Type<Server>>(row: &'r MySqlRow, at: usize) -> Result<T> {
    row.try_get(at).map_err(|error| {
        Error::new(ErrorKind::Internal, "a column does not have the type that this build expects").with_source(error)
    })
}
