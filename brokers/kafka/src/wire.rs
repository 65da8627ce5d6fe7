//! A message as a record of Kafka: a CloudEvents event in binary mode, which is what `landfall_core::wire` says, with the
//! ordering key as the record's key.

use bytes::Bytes;
use landfall_core::{Error, Message, Result, Timestamp, TopicName, wire};
use rdkafka::message::{BorrowedMessage, Header, Headers, Message as _, OwnedHeaders};

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
pub(crate) fn message(topic: &TopicName, record: &BorrowedMessage<'_>) -> Result<Message> {
    let mut headers = Vec::new();
    for header in record.headers().into_iter().flat_map(Headers::iter) {
        let value = std::str::from_utf8(header.value.unwrap_or_default())
            .map_err(|error| Error::invalid(format!("header {:?} is not text", header.key)).with_source(error))?;
        headers.push((header.key, value));
    }
    // Where the event names its key, the record's own may be anything.
    let named = headers.iter().any(|(name, _)| *name == wire::PARTITION_KEY);
    let key = record.key().filter(|key| !named && !key.is_empty()).map(std::str::from_utf8).transpose();
    let key = key.map_err(|error| Error::invalid("the record's key is not text").with_source(error))?;
    let stored = Timestamp::from_millis(record.timestamp().to_millis().unwrap_or_default());
    wire::message(topic, key, stored, headers, Bytes::copy_from_slice(record.payload().unwrap_or_default()))
}
