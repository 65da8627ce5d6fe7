//! Stream entries and their ids.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use landfall_core::Timestamp;
use redis::Value;

/// Low bits of an offset, for the sequence within a millisecond. The milliseconds fit until the year 2109. An offset
/// has 63 bits, so that every database can store it.
const SEQUENCE_BITS: u32 = 21;

/// An entry id of Redis: `milliseconds-sequence`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct EntryId {
    pub(crate) millis: u64,
    pub(crate) sequence: u64,
}

impl EntryId {
    pub(crate) const ZERO: Self = Self { millis: 0, sequence: 0 };

    /// Returns the id as one number with the same order. `append.lua` keeps the sequence within its bits. An id that
    /// another client chose may not fit, and becomes the largest that does.
    pub(crate) fn offset(self) -> u64 {
        let largest = |bits: u32| (1_u64 << bits) - 1;
        let millis = self.millis.min(largest(63 - SEQUENCE_BITS));
        (millis << SEQUENCE_BITS) | self.sequence.min(largest(SEQUENCE_BITS))
    }

    pub(crate) fn from_offset(offset: u64) -> Self {
        Self { millis: offset >> SEQUENCE_BITS, sequence: offset & ((1 << SEQUENCE_BITS) - 1) }
    }

    /// The first id of a millisecond.
    pub(crate) fn at(time: Timestamp) -> Self {
        Self { millis: time.as_millis().max(0) as u64, sequence: 0 }
    }

    pub(crate) fn time(self) -> Timestamp {
        Timestamp::from_millis(i64::try_from(self.millis).unwrap_or(i64::MAX))
    }

    pub(crate) fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
            Value::SimpleString(text) => text.parse().ok(),
            _ => None,
        }
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.millis, self.sequence)
    }
}

impl FromStr for EntryId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (millis, sequence) = text.split_once('-').ok_or(())?;
        Ok(Self { millis: millis.parse().map_err(drop)?, sequence: sequence.parse().map_err(drop)? })
    }
}

/// A stream entry with its raw fields.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: EntryId,
    pub(crate) fields: Vec<(Bytes, Bytes)>,
}

impl Entry {
    /// Parses `[id, [field, value, …]]`. Returns `None` for anything else, such as a deleted entry.
    pub(crate) fn from_value(value: Value) -> Option<Self> {
        let Value::Array(parts) = value else { return None };
        let [id, Value::Array(fields)] = <[Value; 2]>::try_from(parts).ok()? else { return None };
        let id = EntryId::from_value(&id)?;
        let mut fields = fields.into_iter().map(bytes);
        let mut pairs = Vec::with_capacity(fields.len() / 2);
        while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
            pairs.push((name?, value?));
        }
        Some(Self { id, fields: pairs })
    }

    /// Parses an array of entries, and skips deleted ones.
    pub(crate) fn list(value: Value) -> Vec<Self> {
        match value {
            Value::Array(entries) => entries.into_iter().filter_map(Self::from_value).collect(),
            _ => Vec::new(),
        }
    }
}

fn bytes(value: Value) -> Option<Bytes> {
    match value {
        Value::BulkString(bytes) => Some(bytes.into()),
        Value::SimpleString(text) => Some(text.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_sort_like_ids_and_round_trip() {
        let ids =
            ["0-0", "0-1", "1794732000123-0", "1794732000123-2097151", "1794732000124-0", "4398046511103-2097151"];
        let ids = ids.map(|text| text.parse::<EntryId>().unwrap());
        assert!(ids.windows(2).all(|pair| pair[0].offset() < pair[1].offset()), "{ids:?}");
        assert!(ids.iter().all(|id| EntryId::from_offset(id.offset()) == *id && id.offset() <= i64::MAX as u64));
    }

    #[test]
    fn oversized_id_saturates() {
        let id = EntryId { millis: u64::MAX, sequence: u64::MAX };
        assert_eq!(id.offset(), i64::MAX as u64);
        assert!("1-".parse::<EntryId>().is_err() && "x".parse::<EntryId>().is_err());
    }
}
