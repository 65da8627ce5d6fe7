//! Rows as the words of `landfall-core`, and what is cut to fit a column.

use bytes::Bytes;
use landfall_core::{
    DeadLetter, Error, ErrorKind, GroupName, Headers, Key, Kind, Message, OutboxDetail, OutboxEntry, OutboxRow,
    Position, RedriveItem, Result, Shard, Timestamp, TopicName,
};
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::moment::Moment;

/// The longest that a topic can be.
const TOPIC_CHARACTERS: usize = 249;
/// The longest that a key can be.
const KEY_BYTES: usize = 512;
/// The longest error that is stored; a stack trace beyond it helps nobody in a list.
const ERROR_CHARACTERS: usize = 2000;

/// Text of unknown origin as a column takes it: PostgreSQL stores no NUL.
pub(crate) fn storable(text: &str) -> String {
    text.chars().take(ERROR_CHARACTERS).map(|c| if c == '\0' { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// A row of those that read the outbox, and whether its key is blocked. What a foreign writer stored may not be a message;
/// that is told within the entry.
pub(crate) fn entry(row: &PgRow) -> sqlx::Result<(OutboxEntry, bool)> {
    let id: i64 = row.try_get_unchecked(0)?;
    let blocked = row.try_get_unchecked(12)?;
    let entry = OutboxEntry {
        row: id,
        shard: Shard(row.try_get_unchecked::<i16, _>(1)? as u16),
        attempts: row.try_get_unchecked::<i32, _>(2)? as u32,
        message_id: row.try_get_unchecked::<Uuid, _>(3)?.into(),
        message: message(row, 3).map_err(|error| OutboxEntry::unreadable(id, error)),
    };
    Ok((entry, blocked))
}

/// A row of `next_redriven`.
pub(crate) fn redrive_item(row: &PgRow) -> Result<RedriveItem> {
    let id: i64 = row.try_get(0).map_err(undecodable)?;
    let attempts: i32 = row.try_get(1).map_err(undecodable)?;
    let message = message(row, 2).map_err(|error| {
        let sentence = format!("dead letter {id} cannot be a message any more");
        Error::new(ErrorKind::Corrupt, sentence).with_source(error)
    })?;
    let redrives: i32 = row.try_get(11).map_err(undecodable)?;
    let (partition, offset) = original_place(row, 12)?;
    let origin = partition.zip(offset).map(|(partition, offset)| Position { partition, offset });
    Ok(RedriveItem { id, message, origin, attempts: attempts as u32, redrives: redrives as u32 })
}

/// The nine columns of a message, of which the first is at `at`. Our own functions say what their types are, and to
/// compare them again for every value is a quarter of the work.
fn message(row: &PgRow, at: usize) -> Result<Message> {
    let headers: &str = row.try_get_unchecked(at + 6).map_err(undecodable)?;
    Ok(Message {
        id: row.try_get_unchecked::<Uuid, _>(at).map_err(undecodable)?.into(),
        topic: TopicName::new(row.try_get_unchecked::<&str, _>(at + 1).map_err(undecodable)?)?,
        key: row.try_get_unchecked::<Option<&str>, _>(at + 2).map_err(undecodable)?.map(Key::new).transpose()?,
        sequence: row.try_get_unchecked(at + 3).map_err(undecodable)?,
        kind: Kind::new(row.try_get_unchecked::<&str, _>(at + 4).map_err(undecodable)?)?,
        mode: row.try_get_unchecked::<&str, _>(at + 5).map_err(undecodable)?.parse()?,
        headers: if headers == "{}" { Headers::default() } else { Headers::from_json(headers)? },
        payload: Bytes::copy_from_slice(row.try_get_unchecked(at + 7).map_err(undecodable)?),
        time: row.try_get_unchecked::<Moment, _>(at + 8).map_err(undecodable)?.0,
    })
}

/// A row of `outbox_list`, or the beginning of one of `outbox_show`.
pub(crate) fn outbox_row(row: &PgRow) -> Result<OutboxRow> {
    let moment = |at: usize| -> Result<Option<Timestamp>> {
        Ok(row.try_get::<Option<Moment>, _>(at).map_err(undecodable)?.map(|moment| moment.0))
    };
    Ok(OutboxRow {
        row: row.try_get(0).map_err(undecodable)?,
        message_id: row.try_get::<Uuid, _>(1).map_err(undecodable)?.into(),
        topic: shown_topic(row.try_get(2).map_err(undecodable)?)?,
        key: row.try_get::<Option<&str>, _>(3).map_err(undecodable)?.map(shown_key).transpose()?,
        state: row.try_get::<&str, _>(4).map_err(undecodable)?.parse()?,
        attempts: row.try_get::<i32, _>(5).map_err(undecodable)? as u32,
        next_attempt: moment(6)?,
        last_error: row.try_get(7).map_err(undecodable)?,
        created_at: row.try_get::<Moment, _>(8).map_err(undecodable)?.0,
        sent_at: moment(9)?,
        payload_bytes: row.try_get::<i64, _>(10).map_err(undecodable)? as u64,
    })
}

/// A row of `outbox_show`.
pub(crate) fn outbox_detail(row: &PgRow) -> Result<OutboxDetail> {
    Ok(OutboxDetail {
        row: outbox_row(row)?,
        sequence: row.try_get(11).map_err(undecodable)?,
        kind: row.try_get(12).map_err(undecodable)?,
        mode: row.try_get(13).map_err(undecodable)?,
        headers: stored_headers(row.try_get(14).map_err(undecodable)?)?,
        payload: Bytes::copy_from_slice(row.try_get(15).map_err(undecodable)?),
    })
}

fn stored_headers(text: &str) -> Result<serde_json::Value> {
    serde_json::from_str(text)
        .map_err(|error| Error::new(ErrorKind::Corrupt, "stored headers are not JSON").with_source(error))
}

/// A row of `find`.
pub(crate) fn dead_letter(row: &PgRow) -> Result<DeadLetter> {
    let group: &str = row.try_get(2).map_err(undecodable)?;
    let headers: &str = row.try_get(16).map_err(undecodable)?;
    let (original_partition, original_offset) = original_place(row, 12)?;
    Ok(DeadLetter {
        id: row.try_get(0).map_err(undecodable)?,
        message_id: row.try_get::<Uuid, _>(1).map_err(undecodable)?.into(),
        group: if group.is_empty() { None } else { Some(GroupName::new(group)?) },
        topic: shown_topic(row.try_get(3).map_err(undecodable)?)?,
        key: row.try_get::<Option<&str>, _>(4).map_err(undecodable)?.map(shown_key).transpose()?,
        sequence: row.try_get(5).map_err(undecodable)?,
        kind: row.try_get(6).map_err(undecodable)?,
        status: row.try_get::<&str, _>(7).map_err(undecodable)?.parse()?,
        error_code: row.try_get(8).map_err(undecodable)?,
        error: row.try_get(9).map_err(undecodable)?,
        attempts: row.try_get::<i32, _>(10).map_err(undecodable)? as u32,
        redrives: row.try_get::<i32, _>(11).map_err(undecodable)? as u32,
        original_partition,
        original_offset,
        first_seen: row.try_get::<Moment, _>(14).map_err(undecodable)?.0,
        last_attempt: row.try_get::<Moment, _>(15).map_err(undecodable)?.0,
        retry_at: row.try_get::<Option<Moment>, _>(18).map_err(undecodable)?.map(|moment| moment.0),
        headers: stored_headers(headers)?,
        payload: Bytes::copy_from_slice(row.try_get(17).map_err(undecodable)?),
    })
}

/// The columns are signed and the broker's numbers are not; the bits come back as they were.
fn original_place(row: &PgRow, at: usize) -> Result<(Option<u32>, Option<u64>)> {
    let partition: Option<i32> = row.try_get(at).map_err(undecodable)?;
    let offset: Option<i64> = row.try_get(at + 1).map_err(undecodable)?;
    Ok((partition.map(|partition| partition as u32), offset.map(|offset| offset as u64)))
}

/// A key as people see it in a list. A foreign writer's may be none, which is why it was parked: it must be shown, so
/// control characters are shown as `?` and what is too long is cut. The database keeps and compares what was stored.
fn shown_key(text: &str) -> Result<Key> {
    let shown = text.replace(char::is_control, "?");
    let end = shown.floor_char_boundary(KEY_BYTES);
    Key::new(if shown.is_empty() { "?" } else { &shown[..end] })
}

/// A topic as people see it in a list, in the same way; there is no `?` in a topic.
fn shown_topic(text: &str) -> Result<TopicName> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let shown: String = text.chars().take(TOPIC_CHARACTERS).map(|c| if is_fine(c) { c } else { '_' }).collect();
    TopicName::new(text).or_else(|_| TopicName::new(shown)).or_else(|_| TopicName::new("_"))
}

pub(crate) fn undecodable(error: sqlx::Error) -> Error {
    Error::new(ErrorKind::Internal, "a column does not have the type that this build expects").with_source(error)
}
