//! The index of a finished segment: batch positions, message ids, and the messages of idempotent producers.
//!
//! ```text
//! at  bytes
//!  0      4  "LFI" and the version, 1
//!  4      4  CRC32C of bytes 8 to 80
//!  8      4  salt of the segment; it seeds the checksum of every page in this file
//! 12      4  partition
//! 16      8  offset of the segment's first record
//! 24      8  offset after its last record
//! 32      8  size of the segment's file
//! 40      8  latest append time of its batches, milliseconds since 1970; the smallest number if there are none
//! 48      4  number of positions   ┐
//! 52      4  number of ids         │ how many entries each table has;
//! 56      4  number of ranges      │ the tables follow in this order
//! 60      4  number of producers   ┘
//! 64     16  zero
//! 80      …  the pages of the tables, concatenated
//! ```
//!
//! The entries of a table are sorted and unique. They are stored in pages: as many entries as fit into 4 KiB, fewer
//! only in the last page of a table. A page is as long as its entries, and is read and verified on its own:
//!
//! ```text
//!  0      4  CRC32C of everything after it, seeded with the segment's salt
//!  4      4  number of the page, counted over all tables
//!  8      4  number of entries, at least 1
//! 12      4  zero
//! 16      …  the entries
//! ```
//!
//! | table     | bytes | entry                                                                                       |
//! |-----------|-------|---------------------------------------------------------------------------------------------|
//! | positions | 24    | offset of a batch (8), its position in the file (8), latest time of earlier batches (8)     |
//! | ids       | 20    | message id (16, big-endian), its offset less the segment's first (4)                        |
//! | ranges    | 32    | producer (8), first sequence (8), first offset (8), count (4), epoch (2), zero (2)          |
//! | producers | 24    | producer (8), next sequence after this segment (8), epoch (2), zero (6)                     |
//!
//! Numbers are little-endian unless noted otherwise. The file is named like its segment, with the extension `index`.
//!
//! Invariants: an index can be rebuilt from its segment (and the table of producers from the preceding index), so it
//! is never trusted. One that is missing, damaged or describes another file is replaced. It is written atomically,
//! after its segment is final. Its memory use grows with the size of the segment and not with the number of messages,
//! apart from one key per page; entries are read on demand.

mod build;
mod entry;
mod file;
mod header;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod memory_disk;
mod page;
mod positions;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use build::Builder;
pub(crate) use file::{ExpectedSegment, IndexFile, IndexedSegment};
pub(crate) use positions::BatchPosition;

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::write::producers::{Epoch, ProducerId};

/// Messages of one producer whose sequences and offsets are both consecutive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProducerRange {
    pub(crate) producer: ProducerId,
    pub(crate) epoch: Epoch,
    pub(crate) first_sequence: u64,
    pub(crate) first_offset: u64,
    pub(crate) count: u32,
}

impl ProducerRange {
    /// Returns the offsets of the messages from this sequence on, if it is in this range.
    fn offsets_from(&self, sequence: u64) -> Option<Range<u64>> {
        let index = sequence.checked_sub(self.first_sequence)?;
        let (offset, end) = (self.first_offset.checked_add(index)?, self.first_offset.checked_add(self.count.into())?);
        (offset < end).then_some(offset..end)
    }

    /// Appends `next`, if it continues this range.
    fn try_extend(&mut self, next: &ProducerRange) -> bool {
        let count = u64::from(self.count);
        let continues = (self.producer, self.epoch) == (next.producer, next.epoch)
            && self.first_sequence.checked_add(count) == Some(next.first_sequence)
            && self.first_offset.checked_add(count) == Some(next.first_offset);
        match self.count.checked_add(next.count) {
            Some(count) if continues => {
                self.count = count;
                true
            }
            _ => false,
        }
    }
}

/// The path of the index of the segment that starts at `base_offset`.
pub(crate) fn path(directory: &Path, base_offset: u64) -> PathBuf {
    directory.join(format!("{base_offset:020}.index"))
}
