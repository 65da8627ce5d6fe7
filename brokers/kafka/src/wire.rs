//! Maps messages to Kafka records: CloudEvents in binary mode (see `landfall_core::adapter::wire`). The ordering key is
//! the record's key.

use bytes::Bytes;
use landfall_core::adapter::wire;
use landfall_core::{Error, Message, Result, Timestamp, TopicName};
use rdkafka::message::{Header, OwnedHeaders};

/// Upper bounds of Kafka's own bytes per record and per header.
const FRAME_BYTES: usize = 128;
const HEADER_FRAME_BYTES: usize = 8;

/// Returns the headers of `message`, and an upper bound of its stored size.
pub(crate) fn headers(message: &Message, source: &str) -> (OwnedHeaders, usize) {
    let pairs = wire::headers(message, source);
    let mut bytes = FRAME_BYTES + message.payload.len() + message.key.as_ref().map_or(0, |key| key.as_str().len());
    let mut headers = OwnedHeaders::new_with_capacity(pairs.len());
    for (name, value) in &pairs {
        bytes += HEADER_FRAME_BYTES + name.len() + value.len();
        headers = headers.insert(Header { key: name, value: Some(value) });
    }
    (headers, bytes)
}

/// Parses a record into a message. Records of other CloudEvents producers are accepted too.
pub(crate) fn message(
    topic: &TopicName,
    key: Option<&[u8]>,
    stored: Timestamp,
    headers: &[(&[u8], &[u8])],
    payload: Bytes,
) -> Result<Message> {
    let mut texts = Vec::with_capacity(headers.len());
    for (name, value) in headers {
        let not_utf8 = |error| {
            Error::invalid(format!("header {:?} is not valid UTF-8", String::from_utf8_lossy(name))).with_source(error)
        };
        texts.push((str::from_utf8(name).map_err(not_utf8)?, str::from_utf8(value).map_err(not_utf8)?));
    }
    // If the event has a partition key, the record's own key is ignored and may be any bytes.
    let named = texts.iter().any(|(name, _)| *name == wire::PARTITION_KEY);
    let key = key.filter(|key| !named && !key.is_empty()).map(str::from_utf8).transpose();
    let key = key.map_err(|error| Error::invalid("the record's key is not valid UTF-8").with_source(error))?;
    wire::message(topic, key, stored, texts, payload)
}
