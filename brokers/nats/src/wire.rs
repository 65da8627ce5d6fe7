//! CloudEvents in binary mode in NATS headers.
//!
//! Values are percent-encoded, as CloudEvents requires for restricted headers: NATS clients trim whitespace, and some
//! accept ASCII only. Common ids, types and times are unchanged by the encoding.

use async_nats::HeaderMap;
use bytes::Bytes;
use landfall_core::adapter::wire;
use landfall_core::{Error, Message, Result, Timestamp, TopicName};

/// Returns the headers of `message`, including the id by which the server deduplicates.
pub(crate) fn headers(message: &Message, source: &str) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert(async_nats::header::NATS_MESSAGE_ID, wire::broker_id(message).to_string());
    for (name, value) in wire::headers(message, source) {
        // The server acts on these: one of them purges a stream.
        if is_reserved(&name) {
            return Err(Error::invalid(format!("header {name} cannot be sent: Nats- is reserved for the server")));
        }
        headers.insert(name, encoded(&value));
    }
    Ok(headers)
}

/// Returns the size of `headers` and `payload` as the client writes them, which counts against the server's limit.
pub(crate) fn size(headers: &HeaderMap, payload: &Bytes) -> usize {
    let line = |name: usize, value: usize| name + value + ": \r\n".len();
    let lines = headers.iter().flat_map(|(name, values)| {
        let name: &str = name.as_ref();
        values.iter().map(move |value| line(name.len(), value.as_str().len()))
    });
    "NATS/1.0\r\n\r\n".len() + lines.sum::<usize>() + payload.len()
}

/// Parses a stored NATS message.
pub(crate) fn message(
    topic: &TopicName,
    stored: Timestamp,
    headers: Option<&HeaderMap>,
    payload: Bytes,
) -> Result<Message> {
    let pairs = headers.into_iter().flat_map(HeaderMap::iter).filter_map(|(name, values)| {
        let name: &str = name.as_ref();
        let value = values.last()?;
        (!is_reserved(name)).then(|| (name, decoded(value.as_str())))
    });
    let pairs: Vec<_> = pairs.collect();
    wire::message(topic, None, stored, pairs.iter().map(|(name, value)| (*name, value.as_str())), payload)
}

fn is_reserved(name: &str) -> bool {
    name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("nats-"))
}

fn encoded(value: &str) -> String {
    let plain = |byte: u8| (0x21..=0x7e).contains(&byte) && !matches!(byte, b'%' | b'"');
    if value.bytes().all(plain) {
        return value.to_owned();
    }
    let mut text = String::with_capacity(value.len() * 2);
    for byte in value.bytes() {
        match plain(byte) {
            true => text.push(char::from(byte)),
            false => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// Decodes percent-encoding. A `%` without two hex digits was written by another producer, and is kept.
fn decoded(value: &str) -> String {
    if !value.contains('%') {
        return value.to_owned();
    }
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match byte.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| value.to_owned())
}

#[cfg(test)]
mod tests {
    use landfall_core::Headers;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn header_values_round_trip_as_ascii(value in "[^\\r\\n\\x00]{0,40}") {
            let sent = encoded(&value);
            prop_assert!(sent.bytes().all(|byte| (0x21..=0x7e).contains(&byte)));
            prop_assert_eq!(decoded(&sent), value);
        }
    }

    #[test]
    fn unencoded_percent_signs_are_kept() {
        assert_eq!(decoded("100% of it, %zz and %f"), "100% of it, %zz and %f");
        assert_eq!(decoded("100%25"), "100%");
    }

    #[test]
    fn reserved_headers_are_refused() {
        let mut own = Headers::default();
        own.insert("nats-Rollup", "all").unwrap();
        let message = Message::new(TopicName::new("orders").unwrap(), Vec::new()).with_headers(own);
        let reason = "header nats-Rollup cannot be sent: Nats- is reserved for the server";
        assert_eq!(headers(&message, "shop").unwrap_err().to_string(), reason);
    }

    #[test]
    fn event_without_an_id_is_an_error() {
        let topic = TopicName::new("orders").unwrap();
        let error = message(&topic, Timestamp::now(), None, Bytes::from_static(b"hello")).unwrap_err();
        assert_eq!(error.to_string(), "the event has no ce_id");
    }
}
