//! A record: a message as it is stored in a batch.
//!
//! ```text
//! bytes
//!     4  length of what follows
//!     1  attributes: 1 has a key, 2 has a sequence, 4 removed; the upper four bits are the mode
//!    16  message id
//!     8  when it was enqueued, milliseconds since 1970
//!   (8)  its sequence
//!     2  length of the kind
//!   (2)  length of the key
//!     2  number of headers
//!     …  the kind
//!     …  the key
//!     …  the headers: 2 bytes length of the name, 4 bytes length of the value, name, value
//!     …  the payload
//! ```
//!
//! Numbers are little-endian. A *removed* record ends after its id: compaction removed the rest. It keeps its offset
//! and the id that identifies a resend: the message id, or, for a message resent after a failure, the id of this
//! send. A record has no checksum and no offset of its own; its batch has both.

use bytes::{Buf, Bytes};
use landfall_core::adapter::wire;
use landfall_core::{
    Error, ErrorKind, Headers, Key, Kind, Message, MessageId, Mode, Result, SystemHeader, Timestamp, TopicName,
};

pub(crate) const LENGTH_BYTES: usize = 4;

const HAS_KEY: u8 = 1;
const HAS_SEQUENCE: u8 = 2;
const REMOVED: u8 = 4;
const ID_BYTES: usize = 16;
/// Attributes, id, time and the lengths that every record has.
const FIXED_BYTES: usize = 1 + ID_BYTES + 8 + 2 + 2;

/// The encoded size of `message`.
pub(crate) fn encoded_bytes(message: &Message) -> usize {
    let key = message.key.as_ref().map_or(0, |key| 2 + key.as_str().len());
    let sequence = message.sequence.map_or(0, |_| 8);
    let headers: usize = message.headers.iter().map(|(name, value)| 2 + 4 + name.len() + value.len()).sum();
    LENGTH_BYTES + FIXED_BYTES + message.kind.as_str().len() + key + sequence + headers + message.payload.len()
}

/// Appends the record of `message` to `buffer`. The caller has checked the size limit.
pub(crate) fn encode(message: &Message, buffer: &mut Vec<u8>) {
    let total = encoded_bytes(message);
    let (kind, key) = (message.kind.as_str(), message.key.as_ref().map(Key::as_str));
    let mut attributes = mode_bits(message.mode);
    attributes |= if key.is_some() { HAS_KEY } else { 0 };
    attributes |= if message.sequence.is_some() { HAS_SEQUENCE } else { 0 };
    buffer.reserve(total);
    buffer.extend_from_slice(&((total - LENGTH_BYTES) as u32).to_le_bytes());
    buffer.push(attributes);
    buffer.extend_from_slice(message.id.as_bytes());
    buffer.extend_from_slice(&message.time.as_millis().to_le_bytes());
    if let Some(sequence) = message.sequence {
        buffer.extend_from_slice(&sequence.to_le_bytes());
    }
    buffer.extend_from_slice(&(kind.len() as u16).to_le_bytes());
    if let Some(key) = key {
        buffer.extend_from_slice(&(key.len() as u16).to_le_bytes());
    }
    buffer.extend_from_slice(&(message.headers.iter().count() as u16).to_le_bytes());
    buffer.extend_from_slice(kind.as_bytes());
    buffer.extend_from_slice(key.unwrap_or_default().as_bytes());
    for (name, value) in message.headers.iter() {
        buffer.extend_from_slice(&(name.len() as u16).to_le_bytes());
        buffer.extend_from_slice(&(value.len() as u32).to_le_bytes());
        buffer.extend_from_slice(name.as_bytes());
        buffer.extend_from_slice(value.as_bytes());
    }
    buffer.extend_from_slice(&message.payload);
}

/// Splits concatenated `records` into the first one and the rest.
pub(crate) fn split_first(records: &[u8]) -> (&[u8], &[u8]) {
    let length = records.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
    records.split_at((LENGTH_BYTES + length).min(records.len()))
}

/// Appends `record` in its stored form; nothing for a lost record.
pub(crate) fn encode_stored(record: &Record, buffer: &mut Vec<u8>) {
    if !record.body.is_empty() {
        buffer.extend_from_slice(&(record.body.len() as u32).to_le_bytes());
        buffer.extend_from_slice(&record.body);
    }
}

/// Appends what compaction leaves of a record with this id.
pub(crate) fn encode_removed(id: MessageId, buffer: &mut Vec<u8>) {
    buffer.extend_from_slice(&((1 + ID_BYTES) as u32).to_le_bytes());
    buffer.push(REMOVED);
    buffer.extend_from_slice(id.as_bytes());
}

fn mode_bits(mode: Mode) -> u8 {
    let number = match mode {
        Mode::AtMostOnce => 0,
        Mode::AtLeastOnce => 1,
        Mode::EffectivelyOnce => 2,
    };
    number << 4
}

fn mode(attributes: u8) -> Result<Mode> {
    match attributes >> 4 {
        0 => Ok(Mode::AtMostOnce),
        1 => Ok(Mode::AtLeastOnce),
        2 => Ok(Mode::EffectivelyOnce),
        other => Err(Error::new(ErrorKind::Corrupt, format!("the record has the unknown mode {other}"))),
    }
}

/// A stored record, still encoded. Cheap to clone: its bytes are shared with its batch.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) offset: u64,
    body: Bytes,
}

impl Record {
    /// Takes the next record off `records`; `None` if it is incomplete.
    pub(crate) fn split_off(records: &mut Bytes, offset: u64) -> Option<Self> {
        let length = records.try_get_u32_le().ok()? as usize;
        (length <= records.len()).then(|| Self { offset, body: records.split_to(length) })
    }

    /// A placeholder for lost offsets up to this one.
    pub(crate) fn lost(offset: u64) -> Self {
        Self { offset, body: Bytes::new() }
    }

    /// Whether the message is gone: removed by compaction, or lost in a repair.
    pub(crate) fn is_removed(&self) -> bool {
        self.body.first().is_none_or(|attributes| attributes & REMOVED != 0)
    }

    /// The id of its message; `None` if a repair gave it up.
    pub(crate) fn id(&self) -> Option<MessageId> {
        self.body.get(1..)?.first_chunk().copied().map(MessageId::from_bytes)
    }

    /// The id that identifies a resend: the message id, or, for a message resent after a failure, the id of this
    /// send.
    pub(crate) fn dedup_id(&self) -> Option<MessageId> {
        let id = self.id()?;
        // A removed record has only its id, and so has a record that ends too early.
        let system_headers = self.system_headers().unwrap_or_default();
        if system_headers.is_empty() {
            return Some(id);
        }
        let noted = |header: SystemHeader| {
            system_headers.iter().find(|(name, _)| *name == header.as_str()).map(|(_, value)| *value)
        };
        Some(wire::broker_id_of(id, noted))
    }

    /// Parses only the system headers.
    fn system_headers(&self) -> Option<Vec<(&str, &str)>> {
        let attributes = *self.body.first()?;
        if attributes & REMOVED != 0 {
            return None;
        }
        let lengths = 1 + ID_BYTES + 8 + if attributes & HAS_SEQUENCE != 0 { 8 } else { 0 };
        let mut rest = self.body.get(lengths..)?;
        let kind_length = usize::from(rest.try_get_u16_le().ok()?);
        let key_length = if attributes & HAS_KEY != 0 { usize::from(rest.try_get_u16_le().ok()?) } else { 0 };
        let count = rest.try_get_u16_le().ok()?;
        let mut system_headers = Vec::new();
        rest = rest.get(kind_length + key_length..)?;
        for _ in 0..count {
            let name_length = usize::from(rest.try_get_u16_le().ok()?);
            let value_length = rest.try_get_u32_le().ok()? as usize;
            let (name, value) = rest.split_at_checked(name_length)?;
            let (value, others) = value.split_at_checked(value_length)?;
            rest = others;
            if name.starts_with(b"landfall-") {
                system_headers.push((std::str::from_utf8(name).ok()?, std::str::from_utf8(value).ok()?));
            }
        }
        Some(system_headers)
    }

    /// The bytes of its key, without parsing the rest.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        let attributes = *self.body.first()?;
        if attributes & HAS_KEY == 0 || attributes & REMOVED != 0 {
            return None;
        }
        let lengths = 1 + ID_BYTES + 8 + if attributes & HAS_SEQUENCE != 0 { 8 } else { 0 };
        let mut rest = self.body.get(lengths..)?;
        let kind_length = usize::from(rest.try_get_u16_le().ok()?);
        let key_length = usize::from(rest.try_get_u16_le().ok()?);
        rest.get(2 + kind_length..)?.get(..key_length)
    }

    /// The stored form without its length.
    pub(crate) fn body(&self) -> &Bytes {
        &self.body
    }

    /// Decodes the message; its payload shares memory with the batch. An error means that it was stored this way,
    /// because the checksum is right.
    pub(crate) fn message(&self, topic: &TopicName) -> Result<Message> {
        let mut rest = self.body.clone();
        let short = |_| short();
        let attributes = rest.try_get_u8().map_err(short)?;
        if attributes & REMOVED != 0 {
            return Err(Error::new(ErrorKind::NotFound, "the message was removed by compaction"));
        }
        let id = MessageId::from_bytes(rest.try_get_u128().map_err(short)?.to_be_bytes());
        let time = Timestamp::from_millis(rest.try_get_i64_le().map_err(short)?);
        let sequence = match attributes & HAS_SEQUENCE {
            0 => None,
            _ => Some(rest.try_get_i64_le().map_err(short)?),
        };
        let kind_length = usize::from(rest.try_get_u16_le().map_err(short)?);
        let key_length = match attributes & HAS_KEY {
            0 => None,
            _ => Some(usize::from(rest.try_get_u16_le().map_err(short)?)),
        };
        let header_count = rest.try_get_u16_le().map_err(short)?;
        let kind = Kind::new(text(take(&mut rest, kind_length)?.as_ref())?)?;
        let key = match key_length {
            None => None,
            Some(length) => Some(Key::new(text(take(&mut rest, length)?.as_ref())?)?),
        };
        let mut headers = Headers::default();
        for _ in 0..header_count {
            let name_length = usize::from(rest.try_get_u16_le().map_err(short)?);
            let value_length = rest.try_get_u32_le().map_err(short)? as usize;
            let (name, value) = (take(&mut rest, name_length)?, take(&mut rest, value_length)?);
            headers.restore(text(&name)?, text(&value)?)?;
        }
        let mode = mode(attributes)?;
        Ok(Message { id, topic: topic.clone(), key, sequence, kind, mode, headers, payload: rest, time })
    }
}

fn short() -> Error {
    Error::new(ErrorKind::Corrupt, "the record ends before its fields do")
}

fn take(rest: &mut Bytes, length: usize) -> Result<Bytes> {
    if length > rest.len() {
        return Err(short());
    }
    Ok(rest.split_to(length))
}

fn text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes)
        .map_err(|error| Error::invalid("a key or header of the record is not UTF-8").with_source(error))
}

#[cfg(test)]
mod tests {
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
            attempts in proptest::option::of(any::<u32>()),
        ) -> Message {
            let mut message = Message::new(topic(), payload).with_kind(Kind::new("Placed").unwrap()).with_mode(mode);
            message.key = key.map(|key| Key::new(key).unwrap());
            message.sequence = sequence;
            message.headers = Headers::try_from(headers).unwrap();
            if let Some(attempts) = attempts {
                message.headers.note(SystemHeader::Attempts, attempts);
            }
            message
        }
    }

    proptest! {
        #[test]
        fn encoded_messages_decode_unchanged(messages in proptest::collection::vec(any_message(), 1..6)) {
            let mut buffer = Vec::new();
            for message in &messages {
                let before = buffer.len();
                encode(message, &mut buffer);
                prop_assert_eq!(buffer.len() - before, encoded_bytes(message));
            }
            encode_removed(messages[0].id, &mut buffer);
            let mut bytes = Bytes::from(buffer);
            for (offset, message) in messages.iter().enumerate() {
                let record = Record::split_off(&mut bytes, offset as u64).unwrap();
                prop_assert_eq!(&record.message(&topic()).unwrap(), message);
                prop_assert_eq!(record.id(), Some(message.id));
                prop_assert_eq!(record.dedup_id(), Some(wire::broker_id(message)));
                prop_assert_eq!(record.key(), message.key.as_ref().map(|key| key.as_str().as_bytes()));
                prop_assert!(!record.is_removed());
            }
            let removed = Record::split_off(&mut bytes, 9).unwrap();
            prop_assert_eq!((removed.dedup_id(), removed.is_removed()), (Some(messages[0].id), true));
            prop_assert!(removed.message(&topic()).is_err() && removed.key().is_none());
            prop_assert!(bytes.is_empty());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = Bytes::from(bytes);
            while let Some(record) = Record::split_off(&mut bytes, 0) {
                let _ = (record.message(&topic()), record.key().is_some(), record.dedup_id(), record.is_removed());
            }
        }

        #[test]
        fn record_cut_before_its_payload_is_an_error(
            message in any_message(),
            cut in any::<proptest::sample::Index>(),
        ) {
            let mut buffer = Vec::new();
            encode(&message, &mut buffer);
            let body = Bytes::from(buffer).slice(LENGTH_BYTES..);
            let cut = cut.index(body.len() - message.payload.len());
            let record = Record { offset: 0, body: body.slice(..cut) };
            prop_assert!(record.message(&topic()).is_err());
        }
    }
}
