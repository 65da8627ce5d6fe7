//! A record copied out of librdkafka's memory into one buffer.
//!
//! Each delivery and redelivery parses the record into a message. This keeps parsing off the polling thread.
//! It also avoids a second copy of records that are acknowledged at once, which are nearly all.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use landfall_core::{Error, Message, Result, Timestamp, TopicName};
use rdkafka::message::{BorrowedMessage, Headers, Message as _};

use crate::wire;

/// Small records share buffers of this size. A buffer lives as long as one of its records.
const BUFFER_BYTES: usize = 16 * 1024;

/// One record. `bytes` holds the payload, the key, then each header's name and value, prefixed with their lengths.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    stored: Timestamp,
    payload: usize,
    key: Option<usize>,
    is_readable: bool,
    bytes: Bytes,
}

/// The buffer into which records are copied.
#[derive(Debug, Default)]
pub(crate) struct RecordBuffer(BytesMut);

impl RecordBuffer {
    pub(crate) fn copy(&mut self, record: &BorrowedMessage<'_>) -> Record {
        let payload = record.payload().unwrap_or_default();
        let key = record.key();
        self.reserve(payload.len() + key.map_or(0, <[u8]>::len));
        self.0.put_slice(payload);
        self.0.put_slice(key.unwrap_or_default());
        // rdkafka panics if a header's name is not UTF-8. Such a record must not stop the group member.
        let is_readable = catch_unwind(AssertUnwindSafe(|| self.copy_headers(record))).is_ok();
        Record {
            partition: record.partition(),
            offset: record.offset(),
            stored: Timestamp::from_millis(record.timestamp().to_millis().unwrap_or_default()),
            payload: payload.len(),
            key: key.map(<[u8]>::len),
            is_readable,
            bytes: self.0.split().freeze(),
        }
    }

    fn copy_headers(&mut self, record: &BorrowedMessage<'_>) {
        for header in record.headers().into_iter().flat_map(Headers::iter) {
            let (name, value) = (header.key.as_bytes(), header.value.unwrap_or_default());
            self.reserve(name.len() + value.len() + 2 * size_of::<u32>());
            for text in [name, value] {
                self.0.put_u32_ne(text.len() as u32);
                self.0.put_slice(text);
            }
        }
    }

    fn reserve(&mut self, bytes: usize) {
        if self.0.capacity() - self.0.len() < bytes {
            self.0.reserve(bytes.max(BUFFER_BYTES));
        }
    }
}

impl Record {
    #[cfg(test)]
    pub(crate) fn empty(partition: i32, offset: i64) -> Self {
        let stored = Timestamp::from_millis(0);
        Self { partition, offset, stored, payload: 0, key: None, is_readable: true, bytes: Bytes::new() }
    }

    /// Parses the record into a message. Records of other CloudEvents producers are accepted too.
    /// An error carries the payload.
    pub(crate) fn message(&self, topic: &TopicName) -> Result<Message> {
        self.parse(topic).map_err(|error| error.with_payload(self.bytes.slice(..self.payload)))
    }

    fn parse(&self, topic: &TopicName) -> Result<Message> {
        if !self.is_readable {
            return Err(Error::invalid("a header's name is not valid UTF-8"));
        }
        let key_end = self.payload + self.key.unwrap_or_default();
        let key = self.key.map(|_| &self.bytes[self.payload..key_end]);
        let mut headers = Vec::with_capacity(16);
        let mut rest = &self.bytes[key_end..];
        while !rest.is_empty() {
            let name = take_prefixed(&mut rest);
            headers.push((name, take_prefixed(&mut rest)));
        }
        wire::message(topic, key, self.stored, &headers, self.bytes.slice(..self.payload))
    }
}

/// Takes the next length-prefixed name or value.
fn take_prefixed<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let length = rest.get_u32_ne() as usize;
    let (taken, remaining) = rest.split_at(length.min(rest.len()));
    *rest = remaining;
    taken
}
