//! One batch: records that were written together, under one checksum.
//!
//! ```text
//! at  bytes
//!  0      4  "LFB" and the version, 1
//!  4      4  CRC32C of everything after it to the end of the batch, begun with the segment's salt
//!  8      4  length of the records
//! 12      4  number of records, at least 1
//! 16      8  offset of the first record; the others follow without a gap
//! 24      8  synced before: every offset of this partition below it was synced when this batch was written
//! 32      8  the latest time among the records
//! 40      8  producer id        ┐
//! 48      2  producer epoch     │ for idempotent producers; all bits set means none
//! 50      4  producer sequence  ┘
//! 54      2  flags; a reader refuses what it does not know, and it knows none
//! 56      8  zero
//! 64      …  the records
//! ```
//!
//! Numbers are little-endian. Two fields exist to tell an unfinished tail from damage: the salt makes bytes that were
//! copied from elsewhere (a stale block, a payload that is itself a segment) no batch here, and `synced before` lets
//! a later batch testify that an earlier one had been acknowledged.

use std::fmt;

use bytes::Bytes;

use crate::record::{LENGTH_BYTES, Record};

pub(crate) const HEADER_BYTES: usize = 64;
/// What is merged into one batch at most; a single larger record gets a batch of its own.
pub(crate) const MERGE_BYTES: usize = 1024 * 1024;
pub(crate) const MAGIC: [u8; 4] = *b"LFB\x01";

const NO_PRODUCER: [u8; 14] = [0xff; 14];
/// What follows the producer's fields: no flags, and the bytes that are kept for later.
const REST: [u8; 10] = [0; 10];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) length: u32,
    pub(crate) count: u32,
    pub(crate) base_offset: u64,
    pub(crate) synced_before: u64,
    pub(crate) max_timestamp: i64,
}

/// Why the bytes at some place are not a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defect {
    /// They end before the batch does.
    Short,
    NoBatch,
    Checksum,
    Offset {
        expected: u64,
        found: u64,
    },
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Defect::Short => f.write_str("the file ends before the batch does"),
            Defect::NoBatch => f.write_str("no batch begins there"),
            Defect::Checksum => f.write_str("the checksum of the batch is wrong"),
            Defect::Offset { expected, found } => {
                write!(f, "the batch begins with offset {found} where {expected} belongs")
            }
        }
    }
}

impl BatchHeader {
    /// The header in front of `records`, whose lengths add up to `length`.
    pub(crate) fn encode<'a>(&self, salt: u32, records: impl Iterator<Item = &'a [u8]>) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[0..4].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&self.length.to_le_bytes());
        header[12..16].copy_from_slice(&self.count.to_le_bytes());
        header[16..24].copy_from_slice(&self.base_offset.to_le_bytes());
        header[24..32].copy_from_slice(&self.synced_before.to_le_bytes());
        header[32..40].copy_from_slice(&self.max_timestamp.to_le_bytes());
        header[40..54].copy_from_slice(&NO_PRODUCER);
        header[54..64].copy_from_slice(&REST);
        let checksum = records.fold(crc32c::crc32c_append(salt, &header[8..]), crc32c::crc32c_append);
        header[4..8].copy_from_slice(&checksum.to_le_bytes());
        header
    }

    /// Reads the fields without believing them.
    pub(crate) fn peek(bytes: &[u8]) -> Result<Self, Defect> {
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(Defect::Short)?;
        if header[0..4] != MAGIC {
            return Err(Defect::NoBatch);
        }
        Ok(Self {
            length: u32::from_le_bytes(field(header, 8)),
            count: u32::from_le_bytes(field(header, 12)),
            base_offset: u64::from_le_bytes(field(header, 16)),
            synced_before: u64::from_le_bytes(field(header, 24)),
            max_timestamp: i64::from_le_bytes(field(header, 32)),
        })
    }

    /// Header and records together.
    pub(crate) fn total_bytes(&self) -> usize {
        HEADER_BYTES + self.length as usize
    }

    pub(crate) fn next_offset(&self) -> u64 {
        self.base_offset.saturating_add(u64::from(self.count))
    }

    /// Whether `bytes`, which begin with this header, are the batch that was written.
    pub(crate) fn verify(&self, salt: u32, bytes: &[u8]) -> Result<(), Defect> {
        let batch = bytes.get(..self.total_bytes()).ok_or(Defect::Short)?;
        if crc32c::crc32c_append(salt, &batch[8..]).to_le_bytes() != batch[4..8] {
            return Err(Defect::Checksum);
        }
        Ok(())
    }
}

/// Whether the batch at the beginning of `bytes` uses only fields that this build knows.
pub(crate) fn is_understood(bytes: &[u8]) -> bool {
    bytes.get(40..54) == Some(&NO_PRODUCER) && bytes.get(54..64) == Some(&REST)
}

fn field<const N: usize>(header: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    std::array::from_fn(|index| header[at + index])
}

/// A batch whose checksum was right, taken apart.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) header: BatchHeader,
    pub(crate) records: Vec<Record>,
}

impl Batch {
    /// Takes `records` apart; `None` if they do not divide into as many as the header says.
    pub(crate) fn split(header: BatchHeader, mut records: Bytes) -> Option<Self> {
        let count = header.count as usize;
        if count == 0 || count > records.len() / LENGTH_BYTES {
            return None;
        }
        let mut split = Vec::with_capacity(count);
        for offset in header.base_offset..header.next_offset() {
            split.push(Record::split_off(&mut records, offset)?);
        }
        records.is_empty().then_some(Self { header, records: split })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(records: &[u8], salt: u32, base_offset: u64, synced_before: u64) -> (BatchHeader, Vec<u8>) {
        let header = BatchHeader {
            length: records.len() as u32,
            count: 1,
            base_offset,
            synced_before,
            max_timestamp: 1_794_732_000_123,
        };
        let mut bytes = header.encode(salt, records.chunks(7)).to_vec();
        bytes.extend_from_slice(records);
        (header, bytes)
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_what_is_read(
            records in proptest::collection::vec(any::<u8>(), 0..200),
            (salt, base_offset, synced_before) in any::<(u32, u64, u64)>(),
        ) {
            let (header, bytes) = encoded(&records, salt, base_offset, synced_before);
            prop_assert_eq!(BatchHeader::peek(&bytes), Ok(header));
            prop_assert_eq!(header.verify(salt, &bytes), Ok(()));
            prop_assert_eq!(header.verify(salt ^ 1, &bytes), Err(Defect::Checksum));
            prop_assert_eq!(header.verify(salt, &bytes[..bytes.len() - 1]), Err(Defect::Short));
        }

        #[test]
        fn one_flipped_bit_is_always_found(
            records in proptest::collection::vec(any::<u8>(), 1..200),
            salt in any::<u32>(),
            at in any::<proptest::sample::Index>(),
            bit in 0..8,
        ) {
            let (_, mut bytes) = encoded(&records, salt, 42, 40);
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
            prop_assert!(BatchHeader::peek(&bytes).and_then(|header| header.verify(salt, &bytes)).is_err());
        }

        #[test]
        fn any_bytes_at_all_are_a_defect_and_never_a_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
            salt in any::<u32>(),
        ) {
            if let Some(magic) = bytes.first_chunk_mut() {
                *magic = MAGIC;
            }
            prop_assert!(BatchHeader::peek(&bytes).and_then(|header| header.verify(salt, &bytes)).is_err());
        }
    }

    #[test]
    fn a_count_that_the_records_do_not_bear_out_is_refused() {
        for (count, records) in [(0, &[0, 0, 0, 0][..]), (2, &[0, 0, 0, 0]), (1, &[0; 8]), (1, &[9, 0, 0, 0])] {
            let header = BatchHeader { length: 4, count, base_offset: 0, synced_before: 0, max_timestamp: 0 };
            assert!(Batch::split(header, Bytes::from_static(records)).is_none());
        }
    }
}
