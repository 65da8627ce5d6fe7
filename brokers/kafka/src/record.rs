//! A record copied out of the client's memory, once and in one piece.
//!
//! It is decoded when it is delivered, and again for each redelivery: that keeps decoding off the thread that polls,
//! and redeliveries are rare.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use landfall_core::{Error, Message, Result, Timestamp, TopicName};
use rdkafka::message::{BorrowedMessage, Headers, Message as _};

use crate::wire;

/// Small records share allocations of this size, each of which lives as long as one of its records.
const PIECE_BYTES: usize = 16 * 1024;

/// One record: its payload, its key, and the names and values of its headers with their lengths, one behind the other.
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
pub(crate) struct Copies(BytesMut);

impl Copies {
    pub(crate) fn copy(&mut self, record: &BorrowedMessage<'_>) -> Record {
        let payload = record.payload().unwrap_or_default();
        let key = record.key();
        self.room(payload.len() + key.map_or(0, <[u8]>::len));
        self.0.put_slice(payload);
        self.0.put_slice(key.unwrap_or_default());
        // rdkafka panics on a header whose name is not UTF-8; such a record must not end the member.
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
            self.room(name.len() + value.len() + 2 * size_of::<u32>());
            for text in [name, value] {
                self.0.put_u32_ne(text.len() as u32);
                self.0.put_slice(text);
            }
        }
    }

    fn room(&mut self, bytes: usize) {
        if self.0.capacity() - self.0.len() < bytes {
            self.0.reserve(bytes.max(PIECE_BYTES));
        }
    }
}

impl Record {
    #[cfg(test)]
    pub(crate) fn nothing(partition: i32, offset: i64) -> Self {
        let stored = Timestamp::from_millis(0);
        Self { partition, offset, stored, payload: 0, key: None, is_readable: true, bytes: Bytes::new() }
    }

    /// Decodes the message. Records of other producers are decoded as far as possible.
    pub(crate) fn message(&self, topic: &TopicName) -> Result<Message> {
        if !self.is_readable {
            return Err(Error::invalid("the name of a header is not text"));
        }
        let key_ends = self.payload + self.key.unwrap_or_default();
        let key = self.key.map(|_| &self.bytes[self.payload..key_ends]);
        let mut headers = Vec::with_capacity(16);
        let mut rest = &self.bytes[key_ends..];
        while !rest.is_empty() {
            let name = text(&mut rest);
            headers.push((name, text(&mut rest)));
        }
        wire::message(topic, key, self.stored, &headers, self.bytes.slice(..self.payload))
    }
}

/// The next name or value, which is as long as the number before it says.
fn text<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let length = rest.get_u32_ne() as usize;
    let (text, behind) = rest.split_at(length.min(rest.len()));
    *rest = behind;
    text
}
