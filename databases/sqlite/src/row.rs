//! Rows as core's types. Columns are read by name.
//!
//! A row may come from a foreign writer. Values to be published are checked and refused ([`message`]). Values that are
//! only displayed ([`dead_letter`], [`outbox_row`]) are shown as well as possible, since one invalid row must not hide
//! the others.

use bytes::Bytes;
use landfall_core::adapter::{OutboxEntry, RedriveItem, Shard, StoredError, trace_id};
use landfall_core::{
    DeadLetter, Error, ErrorKind, GroupName, Headers, Key, Kind, Message, MessageId, OutboxDetail, OutboxRow, Position,
    Result, Timestamp, TopicName,
};
use sqlx::sqlite::{SqliteRow, SqliteTypeInfo};
use sqlx::{Decode, Row, Type, TypeInfo, ValueRef};
use uuid::Uuid;

/// The only shard.
pub(crate) const SHARD: Shard = Shard(0);

pub(crate) fn outbox_entry(row: &SqliteRow) -> Result<OutboxEntry, sqlx::Error> {
    let id = row.try_get("id")?;
    let message = message(row).map_err(|error| OutboxEntry::unreadable(id, error));
    Ok(OutboxEntry {
        row: id,
        shard: SHARD,
        message_id: message_id(row),
        attempts: count(row.try_get("attempts")?),
        message,
    })
}

/// Returns the message, or an error (kind `Invalid`) that names the invalid column.
pub(crate) fn message(row: &SqliteRow) -> Result<Message> {
    Ok(Message {
        id: column::<String>(row, "message_id")?.parse()?,
        topic: TopicName::new(column::<String>(row, "topic")?)?,
        key: column::<Option<String>>(row, "key")?.map(Key::new).transpose()?,
        sequence: column(row, "sequence")?,
        kind: Kind::new(column::<String>(row, "kind")?)?,
        mode: column::<String>(row, "mode")?.parse()?,
        headers: Headers::from_json(&column::<String>(row, "headers")?)?,
        payload: Bytes::from(column::<Vec<u8>>(row, "payload")?),
        time: Timestamp::from_millis(column(row, "created_at")?),
    })
}

pub(crate) fn outbox_row(row: &SqliteRow) -> Result<OutboxRow> {
    Ok(OutboxRow {
        row: column(row, "id")?,
        message_id: message_id(row),
        topic: TopicName::new(text(row, "topic").unwrap_or_default())?,
        key: text(row, "key").and_then(legible_key),
        state: column::<String>(row, "state")?.parse()?,
        attempts: count(column(row, "attempts")?),
        next_attempt: column::<Option<i64>>(row, "next_attempt_at")?.map(Timestamp::from_millis),
        last_error: text(row, "last_error"),
        created_at: Timestamp::from_millis(column(row, "created_at")?),
        sent_at: column::<Option<i64>>(row, "sent_at")?.map(Timestamp::from_millis),
        payload_bytes: column::<i64>(row, "payload_bytes")?.unsigned_abs(),
    })
}

pub(crate) fn outbox_detail(row: &SqliteRow) -> Result<OutboxDetail> {
    Ok(OutboxDetail {
        row: outbox_row(row)?,
        sequence: column(row, "sequence").unwrap_or_default(),
        kind: text(row, "kind").unwrap_or_default(),
        mode: text(row, "mode").unwrap_or_default(),
        headers: headers(row),
        payload: Bytes::from(column::<Vec<u8>>(row, "payload")?),
    })
}

pub(crate) fn dead_letter(row: &SqliteRow) -> Result<DeadLetter> {
    let group: String = column(row, "consumer_group")?;
    let (original_partition, original_offset) = original_position(row)?;
    let stored = StoredError { fingerprint: column(row, "fingerprint")?, causes: column(row, "causes")? };
    let (error_code, error) = (text(row, "error_code").unwrap_or_default(), text(row, "error").unwrap_or_default());
    let headers = headers(row);
    Ok(DeadLetter {
        id: column(row, "id")?,
        message_id: message_id(row),
        group: if group.is_empty() { None } else { Some(GroupName::new(group)?) },
        topic: TopicName::new(text(row, "topic").unwrap_or_default())?,
        key: text(row, "key").and_then(legible_key),
        sequence: column(row, "sequence").unwrap_or_default(),
        kind: text(row, "kind").unwrap_or_default(),
        status: column::<String>(row, "status")?.parse()?,
        fingerprint: stored.fingerprint(&error_code, &error),
        causes: stored.causes(),
        error_code,
        error,
        attempts: count(column(row, "attempts")?),
        redrives: count(column(row, "redrives")?),
        original_partition,
        original_offset,
        first_seen: Timestamp::from_millis(column(row, "first_seen")?),
        last_attempt: Timestamp::from_millis(column(row, "last_attempt")?),
        retry_at: column::<Option<i64>>(row, "retry_at")?.map(Timestamp::from_millis),
        trace_id: trace_id(&headers),
        headers,
        payload: Bytes::from(column::<Vec<u8>>(row, "payload")?),
        original_payload: column::<Option<Vec<u8>>>(row, "original_payload")?.map(Bytes::from),
    })
}

/// Decodes a row of `next_delayed` or `next_redriven`.
pub(crate) fn redrive_item(row: &SqliteRow) -> Result<RedriveItem> {
    let id: i64 = column(row, "id")?;
    // It was a valid message when it was stored.
    let message = message(row)
        .map_err(|error| Error::new(ErrorKind::Corrupt, format!("dead letter {id} is damaged")).with_source(error))?;
    let (partition, offset) = original_position(row)?;
    let origin = partition.zip(offset).map(|(partition, offset)| Position { partition, offset });
    let (attempts, redrives) = (count(column(row, "attempts")?), count(column(row, "redrives")?));
    Ok(RedriveItem { id, message, origin, attempts, redrives })
}

fn original_position(row: &SqliteRow) -> Result<(Option<u32>, Option<u64>)> {
    let partition: Option<i64> = column(row, "original_partition")?;
    let offset: Option<i64> = column(row, "original_offset")?;
    Ok((partition.and_then(|n| u32::try_from(n).ok()), offset.and_then(|n| u64::try_from(n).ok())))
}

/// Returns headers as they were stored, even if they are not JSON.
fn headers(row: &SqliteRow) -> serde_json::Value {
    let stored = text(row, "headers").unwrap_or_default();
    serde_json::from_str(&stored).unwrap_or(serde_json::Value::String(stored))
}

/// Converts a stored count.
pub(crate) fn count(stored: i64) -> u32 {
    u32::try_from(stored.max(0)).unwrap_or(u32::MAX)
}

fn column<'r, T>(row: &'r SqliteRow, name: &'static str) -> Result<T>
where
    T: Decode<'r, sqlx::Sqlite> + Type<sqlx::Sqlite>,
{
    row.try_get(name).map_err(|error| {
        let stored = row.try_get_raw(name).map_or("nothing".into(), |value| type_name(&value.type_info()));
        Error::invalid(format!("column {name} contains {stored}, which is invalid")).with_source(error)
    })
}

fn type_name(stored: &SqliteTypeInfo) -> String {
    format!("a value of type {}", stored.name())
}

/// Returns a text for display, with � in place of invalid UTF-8.
fn text(row: &SqliteRow, name: &'static str) -> Option<String> {
    let value = row.try_get_raw(name).ok()?;
    if value.is_null() {
        return None;
    }
    let bytes = <Vec<u8> as Decode<sqlx::Sqlite>>::decode(value).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The table's CHECK accepts only UUIDs. A damaged one is shown as the nil UUID, so that its row stays visible.
fn message_id(row: &SqliteRow) -> MessageId {
    text(row, "message_id").and_then(|text| text.parse().ok()).unwrap_or(MessageId::from(Uuid::nil()))
}

fn legible_key(text: String) -> Option<Key> {
    Key::new(&text).ok().or_else(|| {
        let legible: String =
            text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).take(128).collect();
        Key::new(legible).ok()
    })
}
