//! Finds messages that the NATS client cannot parse.
//!
//! The client drops its connection on invalid headers, panics on a lone `\r` in a value, and mistakes a status line for
//! the server's. Each redelivery of such a message would break the connection again, for all its users. So a
//! shard that makes no progress searches for such a message in its stored form, and delivers it as an error.

use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::RawMessage;
use bytes::Bytes;
use landfall_core::{ErrorKind, Result, Timestamp};

use crate::api::PullConsumer;
use crate::connection::Connection;

#[derive(Debug)]
pub(crate) struct Unreadable {
    /// Number of readable messages before it.
    pub(crate) before: usize,
    pub(crate) subject: String,
    pub(crate) sequence: u64,
    pub(crate) stored: Timestamp,
    pub(crate) why: String,
    pub(crate) payload: Bytes,
}

/// Returns the first unreadable message after `floor` among the next `within` messages of `consumer`.
pub(crate) async fn find(
    connection: &Connection,
    consumer: &PullConsumer,
    floor: u64,
    within: usize,
) -> Result<Option<Unreadable>> {
    let info = consumer.info();
    let filter = Some(info.config.filter_subject.as_str()).filter(|filter| !filter.is_empty()).unwrap_or(">");
    let mut next = floor + 1;
    for before in 0..within {
        let message = match connection.message(&info.stream_name, filter, next).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            message => message?,
        };
        let sequence = message.sequence;
        if let Some(why) = why_unreadable(&message) {
            let stored = i64::try_from(message.time.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX);
            let stored = Timestamp::from_millis(stored);
            let why = format!("the headers of the message cannot be parsed: {why}");
            let payload = StreamMessage::try_from(RawMessage { headers: None, ..message.clone() });
            let payload = payload.map(|message| message.payload).unwrap_or_default();
            return Ok(Some(Unreadable { before, subject: message.subject, sequence, stored, why, payload }));
        }
        next = sequence + 1;
    }
    Ok(None)
}

fn why_unreadable(message: &RawMessage) -> Option<String> {
    let headers = message.headers.clone()?;
    if let Err(error) = StreamMessage::try_from(message.clone()) {
        return Some(error.to_string());
    }
    // `StreamMessage` decodes only the payload from base64, so the headers are passed as one.
    let headers = RawMessage { payload: headers, headers: None, ..message.clone() };
    let headers = StreamMessage::try_from(headers).ok()?.payload;
    let mut lines = headers.split(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    // This parser trims values more than the subscriber's, and would not notice these.
    if lines.any(|line| line.strip_suffix(b"\r").unwrap_or(line).contains(&b'\r')) {
        return Some("a value contains a carriage return".into());
    }
    (first.trim_ascii() != b"NATS/1.0").then(|| "they begin with a status, which only the server may send".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_headers_are_unreadable() {
        let why = |headers: &str| {
            let text = format!(r#"{{"subject":"orders.0","seq":4,"time":"2026-11-15T08:00:00Z","hdrs":"{headers}"}}"#);
            why_unreadable(&serde_json::from_str(&text).unwrap())
        };
        // `a: b`, `bad key: x`, `a: b\rc`, `a: b\r` with a continuation line, and a 409.
        assert_eq!(why("TkFUUy8xLjANCmE6IGINCg0K"), None);
        assert!(why("TkFUUy8xLjANCmJhZCBrZXk6IHgNCg0K").is_some());
        assert!(why("TkFUUy8xLjANCmE6IGINYw0KDQo=").is_some());
        assert!(why("TkFUUy8xLjANCmE6IGINDQogYw0KDQo=").is_some());
        let status = why("TkFUUy8xLjAgNDA5IENvbnN1bWVyIERlbGV0ZWQNCg0K");
        assert_eq!(status.as_deref(), Some("they begin with a status, which only the server may send"));
    }
}
