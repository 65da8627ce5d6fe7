//! A batch: records that were written together, under one checksum.
//!
//! ```text
//! at  bytes
//!  0      4  "LFB" and the version, 1
//!  4      4  CRC32C of everything after it to the end of the batch, begun with the segment's salt
//!  8      4  length of the records
//! 12      4  number of records, at least 1
//! 16      8  offset of the first record; the others follow without a gap
//! 24      8  synced before: every offset of this partition below it was synced when this batch was written
//! 32      8  append time, milliseconds since 1970
//! 40      8  producer id               ┐
//! 48      8  sequence of the first     │ all bits of the id set: no idempotent producer
//! 56      2  producer epoch            ┘
//! 58      2  flags: 1 lost; a reader refuses unknown flags
//! 60      4  blank sectors: how many aligned 512 byte sectors inside this batch hold nothing but zeros
//! 64      4  CRC32C of bytes 8 to 64, begun with the segment's salt
//! 68      3  zero
//! 71      1  0xee, the end of the header
//! 72      …  the records
//!  …      1  0xed, the end of the batch
//! ```
//!
//! Numbers are little-endian. A *lost* batch has a count and no records: a repair gave up these offsets.
//!
//! # Torn or damaged?
//!
//! A batch is written over zeros that were synced before. If the power fails before the batch is synced, each of its
//! sectors holds the written bytes or zeros. Where a write stopped, a sector holds written bytes up to some point and
//! zeros after it. So an incomplete write is detectable. The first or last byte of the header, or the last byte of the
//! batch, is zero. Or more sectors are blank than the header says. A wrong batch with none of these signs was written
//! completely and changed later: it is damaged.
//!
//! Two more fields cover what one batch cannot show. The salt prevents copied bytes (a payload that is itself a
//! segment) from being read as a batch. `synced before` lets a later batch prove that an earlier one had been synced,
//! even if nothing is left of it.

use std::fmt;

use bytes::Bytes;

use crate::storage::record::{LENGTH_BYTES, Record};

pub(crate) const HEADER_BYTES: usize = 72;
/// The size of a batch without its records.
pub(crate) const FRAME_BYTES: usize = HEADER_BYTES + 1;
/// Maximum size of a merged batch; a single larger record gets its own batch.
pub(crate) const MERGE_BYTES: usize = 1024 * 1024;
pub(crate) const MAGIC: [u8; 4] = *b"LFB\x01";

/// The unit that a disk writes atomically.
const SECTOR_BYTES: usize = 512;
const NO_PRODUCER: u64 = u64::MAX;
const FLAG_LOST: u16 = 1;
const HEADER_END: u8 = 0xee;
const BATCH_END: u8 = 0xed;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) length: u32,
    pub(crate) count: u32,
    pub(crate) base_offset: u64,
    pub(crate) synced_before: u64,
    /// Append time.
    pub(crate) appended_at: i64,
    pub(crate) sequenced: Option<Sequenced>,
    pub(crate) flags: u16,
    pub(crate) blank_sectors: u32,
}

/// The idempotent producer of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sequenced {
    pub(crate) producer: u64,
    pub(crate) epoch: u16,
    /// The sequence of the first record.
    pub(crate) first: u64,
}

/// Why bytes are not a valid batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defect {
    /// Only zeros.
    Blank,
    /// An incomplete write of a batch.
    Torn,
    /// The bytes end before the batch does.
    Short,
    NotABatch,
    HeaderChecksum,
    Checksum,
    Offset {
        expected: u64,
        found: u64,
    },
}

impl Defect {
    /// Whether a crash may cause this defect. All others are changes after the write.
    pub(crate) fn is_unfinished(self) -> bool {
        matches!(self, Defect::Blank | Defect::Torn)
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Defect::Blank => f.write_str("there are only zeros"),
            Defect::Torn => f.write_str("a part of the batch was never written"),
            Defect::Short => f.write_str("the file ends before the batch does"),
            Defect::NotABatch => f.write_str("no batch begins there"),
            Defect::HeaderChecksum => f.write_str("the checksum of the batch's header is wrong"),
            Defect::Checksum => f.write_str("the checksum of the batch is wrong"),
            Defect::Offset { expected, found } => {
                write!(f, "the batch begins with offset {found} instead of {expected}")
            }
        }
    }
}

impl BatchHeader {
    /// A batch that marks `count` offsets as lost.
    pub(crate) fn lost(base_offset: u64, count: u32, appended_at: i64) -> Self {
        let flags = FLAG_LOST;
        Self {
            length: 0,
            count,
            base_offset,
            synced_before: base_offset,
            appended_at,
            sequenced: None,
            flags,
            blank_sectors: 0,
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.flags & FLAG_LOST != 0
    }

    /// Whether this build knows all its flags.
    pub(crate) fn is_supported(&self) -> bool {
        self.flags & !FLAG_LOST == 0
    }

    /// The size of header and records.
    pub(crate) fn total_bytes(&self) -> usize {
        FRAME_BYTES + self.length as usize
    }

    pub(crate) fn next_offset(&self) -> u64 {
        self.base_offset.saturating_add(u64::from(self.count))
    }

    /// Completes the batch in `buffer`, which holds the records after [`HEADER_BYTES`] reserved bytes. The batch is to
    /// be written at `position` of the segment with this salt. Computes length and blank sectors.
    pub(crate) fn seal(mut self, buffer: &mut Vec<u8>, salt: u32, position: u64) -> Self {
        self.length = (buffer.len() - HEADER_BYTES) as u32;
        buffer.push(BATCH_END);
        // The header is never blank, but its reserved bytes still are.
        buffer[..HEADER_BYTES].fill(HEADER_END);
        self.blank_sectors = blank_sectors(buffer, position);
        self.write(salt, buffer);
        self
    }

    fn write(&self, salt: u32, batch: &mut [u8]) {
        let none = Sequenced { producer: NO_PRODUCER, epoch: 0, first: 0 };
        let sequenced = self.sequenced.unwrap_or(none);
        batch[0..4].copy_from_slice(&MAGIC);
        batch[8..12].copy_from_slice(&self.length.to_le_bytes());
        batch[12..16].copy_from_slice(&self.count.to_le_bytes());
        batch[16..24].copy_from_slice(&self.base_offset.to_le_bytes());
        batch[24..32].copy_from_slice(&self.synced_before.to_le_bytes());
        batch[32..40].copy_from_slice(&self.appended_at.to_le_bytes());
        batch[40..48].copy_from_slice(&sequenced.producer.to_le_bytes());
        batch[48..56].copy_from_slice(&sequenced.first.to_le_bytes());
        batch[56..58].copy_from_slice(&sequenced.epoch.to_le_bytes());
        batch[58..60].copy_from_slice(&self.flags.to_le_bytes());
        batch[60..64].copy_from_slice(&self.blank_sectors.to_le_bytes());
        let checksum = crc32c::crc32c_append(salt, &batch[8..64]);
        batch[64..68].copy_from_slice(&checksum.to_le_bytes());
        batch[68..71].fill(0);
        batch[71] = HEADER_END;
        let checksum = crc32c::crc32c_append(salt, &batch[8..]);
        batch[4..8].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Parses the header at the start of `bytes`, which may be shorter.
    pub(crate) fn read(bytes: &[u8], salt: u32) -> Result<Self, Defect> {
        let header = bytes.first_chunk::<HEADER_BYTES>();
        if bytes.iter().take(HEADER_BYTES).all(|byte| *byte == 0) {
            return Err(Defect::Blank);
        }
        let header = header.ok_or(Defect::Short)?;
        if header[0] == 0 || header[71] == 0 {
            return Err(Defect::Torn);
        }
        if header[0..4] != MAGIC || header[71] != HEADER_END {
            return Err(Defect::NotABatch);
        }
        if crc32c::crc32c_append(salt, &header[8..64]).to_le_bytes() != header[64..68] {
            return Err(Defect::HeaderChecksum);
        }
        let producer = u64::from_le_bytes(field(header, 40));
        let (epoch, first) = (u16::from_le_bytes(field(header, 56)), u64::from_le_bytes(field(header, 48)));
        Ok(Self {
            length: u32::from_le_bytes(field(header, 8)),
            count: u32::from_le_bytes(field(header, 12)),
            base_offset: u64::from_le_bytes(field(header, 16)),
            synced_before: u64::from_le_bytes(field(header, 24)),
            appended_at: i64::from_le_bytes(field(header, 32)),
            sequenced: (producer != NO_PRODUCER).then_some(Sequenced { producer, epoch, first }),
            flags: u16::from_le_bytes(field(header, 58)),
            blank_sectors: u32::from_le_bytes(field(header, 60)),
        })
    }

    /// Whether `bytes`, which start with this header at `position` of the file, are the batch that was written.
    pub(crate) fn verify(&self, salt: u32, bytes: &[u8], position: u64) -> Result<(), Defect> {
        let batch = bytes.get(..self.total_bytes()).ok_or(Defect::Short)?;
        if crc32c::crc32c_append(salt, &batch[8..]).to_le_bytes() == batch[4..8] {
            return Ok(());
        }
        fail::fail_point!("landfall-log::accept-bad-checksum", |_| Ok(()));
        let is_torn = batch.last() == Some(&0) || blank_sectors(batch, position) > self.blank_sectors;
        Err(if is_torn { Defect::Torn } else { Defect::Checksum })
    }
}

/// Counts the aligned sectors inside `batch`, located at `position`, that hold only zeros.
fn blank_sectors(batch: &[u8], position: u64) -> u32 {
    let before = position.next_multiple_of(SECTOR_BYTES as u64) - position;
    let inside = batch.get(before as usize..).unwrap_or_default();
    let is_blank = |sector: &&[u8]| sector[0] == 0 && sector.iter().all(|byte| *byte == 0);
    inside.chunks_exact(SECTOR_BYTES).filter(is_blank).count() as u32
}

fn field<const N: usize>(header: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    std::array::from_fn(|index| header[at + index])
}

/// A batch with a right checksum, split into records.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) header: BatchHeader,
    /// Its position in the file.
    pub(crate) position: u64,
    pub(crate) records: Vec<Record>,
}

impl Batch {
    /// Splits `records`; `None` if they do not divide into as many as the header says.
    pub(crate) fn split(header: BatchHeader, position: u64, mut records: Bytes) -> Option<Self> {
        let count = header.count as usize;
        if header.is_lost() {
            let placeholder = vec![Record::lost(header.next_offset().checked_sub(1)?)];
            return records.is_empty().then_some(Self { header, position, records: placeholder });
        }
        if count == 0 || count > records.len() / LENGTH_BYTES {
            return None;
        }
        let mut split = Vec::with_capacity(count);
        for offset in header.base_offset..header.next_offset() {
            split.push(Record::split_off(&mut records, offset)?);
        }
        records.is_empty().then_some(Self { header, position, records: split })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(base_offset: u64, synced_before: u64) -> BatchHeader {
        let appended_at = 1_794_732_000_123;
        let sequenced = Some(Sequenced { producer: 3, epoch: 1, first: base_offset });
        BatchHeader {
            length: 0,
            count: 1,
            base_offset,
            synced_before,
            appended_at,
            sequenced,
            flags: 0,
            blank_sectors: 0,
        }
    }

    fn sealed(records: &[u8], salt: u32, position: u64) -> (BatchHeader, Vec<u8>) {
        let mut bytes = [&[0; HEADER_BYTES], records].concat();
        (header(42, 40).seal(&mut bytes, salt, position), bytes)
    }

    fn diagnose(bytes: &[u8], salt: u32, position: u64) -> Result<(), Defect> {
        BatchHeader::read(bytes, salt)?.verify(salt, bytes, position)
    }

    /// Records with long runs of zeros, so that whole sectors are blank.
    fn records() -> impl Strategy<Value = Vec<u8>> {
        let run = (prop_oneof![Just(0_u8), any::<u8>()], 1..1500_usize);
        let runs = proptest::collection::vec(run, 0..5);
        runs.prop_map(|runs| runs.iter().flat_map(|(byte, length)| vec![*byte; *length]).collect())
    }

    proptest! {
        #[test]
        fn sealed_batch_reads_back_unchanged(records in records(), salt in any::<u32>(), position in 0..5000_u64) {
            let (header, bytes) = sealed(&records, salt, position);
            prop_assert_eq!(header.total_bytes(), bytes.len());
            prop_assert_eq!(BatchHeader::read(&bytes, salt), Ok(header));
            prop_assert_eq!(header.verify(salt, &bytes, position), Ok(()));
            prop_assert!(header.verify(salt ^ 1, &bytes, position).is_err());
            prop_assert_eq!(header.verify(salt, &bytes[..bytes.len() - 1], position), Err(Defect::Short));
        }

        #[test]
        fn flipped_bit_is_damage_and_never_a_torn_write(
            records in proptest::collection::vec(prop_oneof![Just(0_u8), Just(0xff)], 1..2000),
            salt in any::<u32>(),
            position in 0..5000_u64,
            at in any::<proptest::sample::Index>(),
            bit in 0..8,
        ) {
            let (_, mut bytes) = sealed(&records, salt, position);
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
            let defect = diagnose(&bytes, salt, position).unwrap_err();
            prop_assert!(!defect.is_unfinished(), "{}", defect);
        }

        #[test]
        fn incomplete_write_is_never_damage(
            records in records(),
            salt in any::<u32>(),
            position in 0..5000_u64,
            written in any::<proptest::sample::Index>(),
            lost_sectors in proptest::collection::vec(any::<proptest::sample::Index>(), 0..3),
        ) {
            let (_, bytes) = sealed(&records, salt, position);
            let mut found = bytes.clone();
            found[written.index(bytes.len() + 1)..].fill(0);
            let sectors = (position as usize + bytes.len()) / SECTOR_BYTES + 1;
            for sector in lost_sectors {
                let from = (sector.index(sectors) * SECTOR_BYTES).saturating_sub(position as usize);
                let to = ((sector.index(sectors) + 1) * SECTOR_BYTES).saturating_sub(position as usize);
                found[from.min(bytes.len())..to.min(bytes.len())].fill(0);
            }
            match diagnose(&found, salt, position) {
                Ok(()) => prop_assert_eq!(found, bytes),
                Err(defect) => prop_assert!(defect.is_unfinished(), "{}", defect),
            }
        }

        #[test]
        fn arbitrary_bytes_are_a_defect_and_never_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
            salt in any::<u32>(),
        ) {
            if let Some(magic) = bytes.first_chunk_mut() {
                *magic = MAGIC;
            }
            prop_assert!(diagnose(&bytes, salt, 0).is_err());
        }
    }

    #[test]
    fn count_that_contradicts_the_records_is_refused() {
        for (count, records) in [(0, &[0, 0, 0, 0][..]), (2, &[0, 0, 0, 0]), (1, &[0; 8]), (1, &[9, 0, 0, 0])] {
            let header = BatchHeader { count, ..header(0, 0) };
            assert!(Batch::split(header, 0, Bytes::from_static(records)).is_none());
        }
    }
}
