//! A message as a record of Kafka: a CloudEvents event in binary mode, which is what `landfall_core::wire` says, with the
//! ordering key as the record's key.

use bytes::Bytes;
use landfall_core::{Error, Message, Result, Timestamp, TopicName, wire};
use rdkafka::message::{Header, OwnedHeaders};

/// A record's frame and lengths: more than Kafka needs for them.
const FRAME_BYTES: usize = 128;
const HEADER_FRAME_BYTES: usize = 8;

/// The headers of `message`, and what it takes on the cluster's side.
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

/// The message behind a record. Records of producers that were never told about Landfall are understood as far as they go.
pub(crate) fn message(
    topic: &TopicName,
    key: Option<&[u8]>,
    stored: Timestamp,
    headers: &[(&[u8], &[u8])],
    payload: Bytes,
) -> Result<Message> {
    let mut texts = Vec::with_capacity(headers.len());
    for (name, value) in headers {
        let not_text = |error| {
            Error::invalid(format!("header {:?} is not text", String::from_utf8_lossy(name))).with_source(error)
        };
        texts.push((str::from_utf8(name).map_err(not_text)?, str::from_utf8(value).map_err(not_text)?));
    }
    // Where the event names its key, the record's own may be anything.
    let named = texts.iter().any(|(name, _)| *name == wire::PARTITION_KEY);
    let key = key.filter(|key| !named && !key.is_empty()).map(str::from_utf8).transpose();
    let key = key.map_err(|error| Error::invalid("the record's key is not text").with_source(error))?;
    wire::message(topic, key, stored, texts, payload)
}
