//! A segment: a file that holds the batches of a partition from some offset on.
//!
//! ```text
//! at  bytes
//!  0      4  "LFS" and the version, 1
//!  4      4  CRC32C of bytes 8 to 64
//!  8      4  salt: a random number that seeds the checksum of every batch in this file
//! 12      4  partition
//! 16      8  offset of the first record
//! 24      8  offset of the first record in the previous segment; all bits set if there is none
//! 32      8  final size of the previous segment; 0 if there is none
//! 40      8  creation time, milliseconds since 1970
//! 48      8  its size before it was rewritten; 0 if it never was
//! 56      8  zero
//! 64      …  the batches, concatenated; after the last one zeros, while it is the last segment
//! ```
//!
//! Numbers are little-endian. The file name is the first offset in 20 digits, so that names sort like offsets.
//!
//! Invariants: a segment gets its name only after its header is synced. It is started only after its predecessor is
//! synced, truncated and final. So every segment but the last must have exactly the size that its successor recorded,
//! and a wrong header is always damage. Compaction and repair replace a final segment by a rewritten one, which names
//! the size that its successor expects.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use landfall_core::{Result, Timestamp};

use crate::disk::{self, Access, Disk, File};
use crate::durable::{UNFINISHED, damaged, failed, sync_new_name};

pub(crate) const HEADER_BYTES: usize = 64;

const MAGIC: [u8; 4] = *b"LFS\x01";
const EXTENSION: &str = "segment";
const NONE_BEFORE: u64 = u64::MAX;

/// The first offset and the size of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) base_offset: u64,
    /// The end of its last batch in the file.
    pub(crate) bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) salt: u32,
    pub(crate) partition: u32,
    pub(crate) base_offset: u64,
    pub(crate) previous: Option<Extent>,
    pub(crate) created: Timestamp,
    /// The size that its successor recorded, if it was rewritten since.
    pub(crate) original_bytes: Option<u64>,
}

impl SegmentHeader {
    pub(crate) fn new(partition: u32, base_offset: u64, previous: Option<Extent>) -> Self {
        // The standard library's hasher is seeded by the operating system: random enough to distinguish files.
        let salt = RandomState::new().build_hasher().finish() as u32;
        Self { salt, partition, base_offset, previous, created: Timestamp::now(), original_bytes: None }
    }

    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        let previous = self.previous.unwrap_or(Extent { base_offset: NONE_BEFORE, bytes: 0 });
        header[0..4].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&self.salt.to_le_bytes());
        header[12..16].copy_from_slice(&self.partition.to_le_bytes());
        header[16..24].copy_from_slice(&self.base_offset.to_le_bytes());
        header[24..32].copy_from_slice(&previous.base_offset.to_le_bytes());
        header[32..40].copy_from_slice(&previous.bytes.to_le_bytes());
        header[40..48].copy_from_slice(&self.created.as_millis().to_le_bytes());
        header[48..56].copy_from_slice(&self.original_bytes.unwrap_or_default().to_le_bytes());
        let checksum = crc32c::crc32c(&header[8..]);
        header[4..8].copy_from_slice(&checksum.to_le_bytes());
        header
    }

    fn decode(header: &[u8; HEADER_BYTES]) -> std::result::Result<Self, &'static str> {
        if header[0..4] != MAGIC {
            return Err("the file does not begin like a segment");
        }
        if crc32c::crc32c(&header[8..]).to_le_bytes() != header[4..8] {
            return Err("the checksum of the segment's header is wrong");
        }
        if header[56..] != [0; 8] {
            return Err("the segment's header uses fields that this build does not know");
        }
        let previous = Extent { base_offset: u64_at(header, 24), bytes: u64_at(header, 32) };
        Ok(Self {
            salt: u64_at(header, 8) as u32,
            partition: (u64_at(header, 8) >> 32) as u32,
            base_offset: u64_at(header, 16),
            previous: (previous.base_offset != NONE_BEFORE).then_some(previous),
            created: Timestamp::from_millis(u64_at(header, 40) as i64),
            original_bytes: Some(u64_at(header, 48)).filter(|bytes| *bytes > 0),
        })
    }

    /// Creates the segment's file durably, with only this header.
    pub(crate) fn create(&self, disk: &dyn Disk, directory: &Path) -> Result<Arc<dyn File>> {
        let path = path(directory, self.base_offset);
        let unfinished = directory.join(UNFINISHED);
        let create = || -> io::Result<Arc<dyn File>> {
            let file = disk.open(&unfinished, Access::Create)?;
            file.write_at(&self.encode(), 0)?;
            file.sync()?;
            // Syncing the folder needs another file descriptor: find out now whether there is one.
            disk.list(directory)?;
            disk.rename(&unfinished, &path)?;
            Ok(file)
        };
        let file = create().map_err(failed("create the segment", &path))?;
        // The segment exists now, so its predecessor must not grow any more.
        sync_new_name(disk, directory)?;
        Ok(file)
    }

    /// Reads the header of the segment at `path`, which must be that of `partition` and `base_offset`.
    pub(crate) fn read(file: &dyn File, path: &Path, partition: u32, base_offset: u64) -> Result<Self> {
        let header = Self::read_any(file, path)?;
        if (header.partition, header.base_offset) != (partition, base_offset) {
            let (partition, offset) = (header.partition, header.base_offset);
            return Err(damaged(path, 0, format!("its header names partition {partition}, offset {offset}")));
        }
        Ok(header)
    }

    /// Reads the header of the segment at `path`, for any partition and offset.
    pub(crate) fn read_any(file: &dyn File, path: &Path) -> Result<Self> {
        let bytes = disk::read(file, 0, HEADER_BYTES).map_err(failed("read", path))?;
        let Some(bytes) = bytes.first_chunk() else {
            return Err(damaged(path, 0, "the file is too short for a segment's header"));
        };
        Self::decode(bytes).map_err(|why| damaged(path, 0, why))
    }
}

pub(crate) fn path(directory: &Path, base_offset: u64) -> PathBuf {
    directory.join(format!("{base_offset:020}.{EXTENSION}"))
}

/// Lists the first offsets of all segments in `directory`, sorted.
pub(crate) fn list(disk: &dyn Disk, directory: &Path) -> Result<Vec<u64>> {
    let mut bases = Vec::new();
    for name in disk.list(directory).map_err(failed("list", directory))? {
        if let Some((stem, EXTENSION)) = name.rsplit_once('.') {
            bases.push(stem.parse().map_err(|_| damaged(&directory.join(&name), 0, "its name is not an offset"))?);
        }
    }
    bases.sort_unstable();
    Ok(bases)
}

fn u64_at(header: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|index| header[at + index]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn header_reads_back_unchanged_and_flipped_bits_are_detected(
            (salt, partition, base_offset) in any::<(u32, u32, u64)>(),
            previous in proptest::option::of((0..u64::MAX, any::<u64>())),
            created in any::<i64>(),
            original_bytes in proptest::option::of(1..u64::MAX),
            at in 0..HEADER_BYTES,
            bit in 0..8,
        ) {
            let previous = previous.map(|(base_offset, bytes)| Extent { base_offset, bytes });
            let created = Timestamp::from_millis(created);
            let header = SegmentHeader { salt, partition, base_offset, previous, created, original_bytes };
            let mut bytes = header.encode();
            prop_assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
            bytes[at] ^= 1_u8 << bit;
            prop_assert!(SegmentHeader::decode(&bytes).is_err());
        }
    }
}
