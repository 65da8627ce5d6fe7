//! One record: a message as it stands in a batch.
//!
//! ```text
//! bytes
//!     4  length of what follows
//!     8  when the log took it, milliseconds since 1970
//!     2  number of headers
//!     4  length of the key; 0xffffffff if there is none
//!     4  length of the payload
//!     …  the key
//!     …  the headers: 2 bytes length of the name, 4 bytes length of the value, name, value
//!     …  the payload
//! ```
//!
//! Numbers are little-endian. The headers are those of a CloudEvents event ([`landfall_core::wire`]); key and payload
//! are kept apart from them because the one decides the partition and the other should not be copied to be read.
//! A record has no checksum and no offset of its own: its batch has both.

use bytes::{Buf, Bytes};
use landfall_core::{Error, ErrorKind, Message, Result, Timestamp, TopicName, wire};

/// What stands in `ce_source` of everything that this log stores.
const SOURCE: &str = "landfall";
const NO_KEY: u32 = u32::MAX;
/// Bytes before the key, without the length in front.
const FIXED_BYTES: usize = 8 + 2 + 4 + 4;
pub(crate) const LENGTH_BYTES: usize = 4;

/// A message that is about to be encoded: how long its record will be is known, nothing was copied yet.
pub(crate) struct Encoding<'a> {
    message: &'a Message,
    headers: Vec<(String, String)>,
    /// Bytes after the length.
    length: usize,
}

impl<'a> Encoding<'a> {
    pub(crate) fn new(message: &'a Message) -> Self {
        let headers = wire::headers(message, SOURCE);
        let headers_length: usize = headers.iter().map(|(name, value)| 2 + 4 + name.len() + value.len()).sum();
        let key_length = message.key.as_ref().map_or(0, |key| key.as_str().len());
        let length = FIXED_BYTES + key_length + headers_length + message.payload.len();
        Self { message, headers, length }
    }

    /// Bytes of the whole record.
    pub(crate) fn total_bytes(&self) -> usize {
        LENGTH_BYTES + self.length
    }

    /// Appends the record to `buffer`. The caller has checked that it is not too large.
    pub(crate) fn write(&self, stored: Timestamp, buffer: &mut Vec<u8>) {
        let key = self.message.key.as_ref().map(|key| key.as_str().as_bytes());
        buffer.reserve(self.total_bytes());
        buffer.extend_from_slice(&(self.length as u32).to_le_bytes());
        buffer.extend_from_slice(&stored.as_millis().to_le_bytes());
        buffer.extend_from_slice(&(self.headers.len() as u16).to_le_bytes());
        buffer.extend_from_slice(&key.map_or(NO_KEY, |key| key.len() as u32).to_le_bytes());
        buffer.extend_from_slice(&(self.message.payload.len() as u32).to_le_bytes());
        buffer.extend_from_slice(key.unwrap_or_default());
        for (name, value) in &self.headers {
            buffer.extend_from_slice(&(name.len() as u16).to_le_bytes());
            buffer.extend_from_slice(&(value.len() as u32).to_le_bytes());
            buffer.extend_from_slice(name.as_bytes());
            buffer.extend_from_slice(value.as_bytes());
        }
        buffer.extend_from_slice(&self.message.payload);
    }
}

/// A stored record, still encoded: cheap to keep and to copy, since its bytes are shared with its batch.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) offset: u64,
    body: Bytes,
}

impl Record {
    /// Takes the next record off `records`; `None` if there are not enough bytes for one.
    pub(crate) fn split_off(records: &mut Bytes, offset: u64) -> Option<Self> {
        let length = records.try_get_u32_le().ok()? as usize;
        (length <= records.len()).then(|| Self { offset, body: records.split_to(length) })
    }

    /// The message, its payload shared with the batch. An error if what stands here is not one: its checksum was
    /// right, so it was stored like that.
    pub(crate) fn message(&self, topic: &TopicName) -> Result<Message> {
        let mut rest = self.body.clone();
        let short = |_| Error::new(ErrorKind::Corrupt, "the record ends before its fields do");
        let stored = Timestamp::from_millis(rest.try_get_i64_le().map_err(short)?);
        let header_count = rest.try_get_u16_le().map_err(short)?;
        let key_length = rest.try_get_u32_le().map_err(short)?;
        let payload_length = rest.try_get_u32_le().map_err(short)? as usize;
        let key = if key_length == NO_KEY { None } else { Some(take(&mut rest, key_length as usize)?) };
        let mut headers = Vec::with_capacity(usize::from(header_count));
        for _ in 0..header_count {
            let name_length = rest.try_get_u16_le().map_err(short)?;
            let value_length = rest.try_get_u32_le().map_err(short)?;
            let name = take(&mut rest, usize::from(name_length))?;
            headers.push((name, take(&mut rest, value_length as usize)?));
        }
        if rest.len() != payload_length {
            return Err(Error::new(ErrorKind::Corrupt, "the record's fields do not fill the record"));
        }
        let key = key.as_deref().map(text).transpose()?;
        let headers = headers.iter().map(|(name, value)| Ok((text(name)?, text(value)?)));
        wire::message(topic, key, stored, headers.collect::<Result<Vec<_>>>()?, rest)
    }
}

fn take(rest: &mut Bytes, length: usize) -> Result<Bytes> {
    if length > rest.len() {
        return Err(Error::new(ErrorKind::Corrupt, "the record ends before its fields do"));
    }
    Ok(rest.split_to(length))
}

fn text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes)
        .map_err(|error| Error::invalid("a key or header of the record is not UTF-8").with_source(error))
}

#[cfg(test)]
mod tests {
    use landfall_core::{Headers, Key, Kind, Mode};
    use proptest::prelude::*;

    use super::*;

    fn topic() -> TopicName {
        TopicName::new("orders").unwrap()
    }

    prop_compose! {
        fn any_message()(
            key in proptest::option::of("[^\\x00-\\x1f\\x7f-\\x9f]{1,40}"),
            sequence in proptest::option::of(any::<i64>()),
            headers in proptest::collection::btree_map("x-[a-z]{1,20}", "[^\\r\\n\\x00]{0,60}", 0..4),
            payload in proptest::collection::vec(any::<u8>(), 0..300),
            mode in proptest::sample::select(Mode::ALL.to_vec()),
        ) -> Message {
            let mut message = Message::new(topic(), payload).with_kind(Kind::new("Placed").unwrap()).with_mode(mode);
            message.key = key.map(|key| Key::new(key).unwrap());
            message.sequence = sequence;
            message.headers = Headers::try_from(headers).unwrap();
            message
        }
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_what_is_decoded(messages in proptest::collection::vec(any_message(), 1..6)) {
            let mut buffer = Vec::new();
            for message in &messages {
                let (encoding, before) = (Encoding::new(message), buffer.len());
                encoding.write(Timestamp::now(), &mut buffer);
                prop_assert_eq!(buffer.len() - before, encoding.total_bytes());
            }
            let mut bytes = Bytes::from(buffer);
            for (offset, message) in messages.iter().enumerate() {
                let record = Record::split_off(&mut bytes, offset as u64).unwrap();
                prop_assert_eq!(&record.message(&topic()).unwrap(), message);
            }
            prop_assert!(bytes.is_empty());
        }

        #[test]
        fn any_bytes_at_all_are_an_error_and_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = Bytes::from(bytes);
            while let Some(record) = Record::split_off(&mut bytes, 0) {
                prop_assert!(record.message(&topic()).is_err());
            }
        }

        #[test]
        fn a_record_that_was_cut_is_an_error(message in any_message(), cut in any::<proptest::sample::Index>()) {
            let mut buffer = Vec::new();
            Encoding::new(&message).write(Timestamp::now(), &mut buffer);
            let body = Bytes::from(buffer).slice(LENGTH_BYTES..);
            let record = Record { offset: 0, body: body.slice(..cut.index(body.len())) };
            prop_assert!(record.message(&topic()).is_err());
        }
    }
}
