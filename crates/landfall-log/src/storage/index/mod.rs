//! The index of a finished segment: where to begin reading, which ids it holds, and what producers wrote into it.
//!
//! ```text
//! at  bytes
//!  0      4  "LFI" and the version, 1
//!  4      4  CRC32C of bytes 8 to 80
//!  8      4  salt of the segment; it begins the checksum of every page in this file
//! 12      4  partition
//! 16      8  offset of the segment's first record
//! 24      8  offset behind its last record
//! 32      8  size of the segment's file
//! 40      8  the latest time of its batches, milliseconds since 1970; the smallest number if there are none
//! 48      4  number of places      ┐
//! 52      4  number of ids         │ how many entries each table has;
//! 56      4  number of ranges      │ the tables follow in this order
//! 60      4  number of producers   ┘
//! 64     16  zero
//! 80      …  the pages of the tables, one after the other
//! ```
//!
//! The entries of a table are sorted, none twice, and stand in pages: as many entries as fit into 4 KiB, fewer only in
//! the last page of a table. A page is as long as its entries, and is read and verified alone:
//!
//! ```text
//!  0      4  CRC32C of everything after it, begun with the segment's salt
//!  4      4  number of the page, counted over all tables
//!  8      4  number of entries, at least 1
//! 12      4  zero
//! 16      …  the entries
//! ```
//!
//! | table     | bytes | entry                                                                                       |
//! |-----------|-------|---------------------------------------------------------------------------------------------|
//! | places    | 24    | offset of a batch (8), its place in the file (8), the latest time of the batches before (8) |
//! | ids       | 20    | message id (16, big-endian), its offset less the segment's first (4)                        |
//! | ranges    | 32    | producer (8), first sequence (8), first offset (8), count (4), epoch (2), zero (2)          |
//! | producers | 24    | producer (8), next sequence behind this segment (8), epoch (2), zero (6)                    |
//!
//! Numbers are little-endian unless said otherwise. The file is called like its segment, with `index` for `segment`.
//!
//! Invariants: an index can be made again from its segment (and the table of producers from the index before it), so
//! it is never trusted: one that is missing, damaged or about another file is replaced. It is written as a
//! whole, after its segment is final. What it keeps in memory grows with the size of the segment and not with the
//! number of its messages, apart from one key for each page: the entries are read when somebody asks.

mod build;
mod entry;
mod file;
mod header;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod memory_disk;
mod page;
mod places;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use build::Builder;
pub(crate) use file::{Described, Expected, IndexFile};
pub(crate) use places::Place;

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::write::producers::{Epoch, ProducerId};

/// Messages of one producer whose sequences and whose offsets both follow each other without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProducerRange {
    pub(crate) producer: ProducerId,
    pub(crate) epoch: Epoch,
    pub(crate) first_sequence: u64,
    pub(crate) first_offset: u64,
    pub(crate) count: u32,
}

impl ProducerRange {
    /// Where the message with this sequence stands, and those behind it, if it is in this range.
    fn offsets_from(&self, sequence: u64) -> Option<Range<u64>> {
        let index = sequence.checked_sub(self.first_sequence)?;
        let (offset, end) = (self.first_offset.checked_add(index)?, self.first_offset.checked_add(self.count.into())?);
        (offset < end).then_some(offset..end)
    }

    /// Takes `next` in, if it goes on where this range ends.
    fn try_extend(&mut self, next: &ProducerRange) -> bool {
        let count = u64::from(self.count);
        let goes_on = (self.producer, self.epoch) == (next.producer, next.epoch)
            && self.first_sequence.checked_add(count) == Some(next.first_sequence)
            && self.first_offset.checked_add(count) == Some(next.first_offset);
        match self.count.checked_add(next.count) {
            Some(count) if goes_on => {
                self.count = count;
                true
            }
            _ => false,
        }
    }
}

/// The index of the segment that begins with `base_offset`.
pub(crate) fn path(directory: &Path, base_offset: u64) -> PathBuf {
    directory.join(format!("{base_offset:020}.index"))
}
