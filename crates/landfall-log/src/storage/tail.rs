//! A backup of a partition's last batches, kept beside their segment while recovery rewrites them in place.
//!
//! ```text
//! at  bytes
//!  0      4  "LFT" and the version, 1
//!  4      4  CRC32C of everything after it
//!  8      4  salt of the segment
//! 12      4  zero
//! 16      8  offset of the first record in the segment
//! 24      8  position of the bytes in the segment
//! 32      …  the bytes, to the end of the file and of the segment
//! ```
//!
//! Why: rewriting bytes in place is risky. The first write may never have reached the disk, because its sync failed. If
//! the power fails during the second, a sector may hold a part of the batch followed by zeros. That is
//! indistinguishable from damage. So the bytes are made durable here first.
//!
//! Invariant: from the moment a byte of the segment may change until the segment is synced, this file exists, complete
//! and durable. Recovery restores its bytes before it reads anything, as often as needed. The file gets its name only
//! after it is synced, so one with a wrong checksum is damaged and not unfinished.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use landfall_core::Result;

use crate::disk::{Access, Disk, File};
use crate::durable::{self, damaged, failed};
use crate::storage::segment::{self, SegmentHeader};

const NAME: &str = "tail";

const HEADER_BYTES: usize = 32;
const MAGIC: [u8; 4] = *b"LFT\x01";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TailBackup {
    pub(crate) salt: u32,
    pub(crate) base_offset: u64,
    pub(crate) position: u64,
    pub(crate) bytes: Vec<u8>,
}

/// The path of the backup of the partition in `directory`.
pub(crate) fn path(directory: &Path) -> PathBuf {
    directory.join(NAME)
}

/// Restores the backup of the partition in `directory`, if an earlier recovery was interrupted.
pub(crate) fn restore(disk: &dyn Disk, directory: &Path) -> Result<()> {
    let Some(tail) = TailBackup::load(disk, directory)? else { return Ok(()) };
    // The process may have died before the file's name was durable, and from now on the segment relies on it.
    durable::sync_directory(disk, directory)?;
    tail.apply(disk, directory)
}

impl TailBackup {
    pub(crate) fn read(disk: &dyn Disk, directory: &Path) -> Result<Option<Self>> {
        let path = path(directory);
        let Some(content) = durable::read(disk, &path)? else { return Ok(None) };
        Self::decode(&content).map(Some).map_err(|why| damaged(&path, 0, why))
    }

    /// Reads the backup in `directory`, if there is one, and checks that it belongs to its segment.
    pub(crate) fn load(disk: &dyn Disk, directory: &Path) -> Result<Option<Self>> {
        let Some(tail) = Self::read(disk, directory)? else { return Ok(None) };
        let path = segment::path(directory, tail.base_offset);
        match disk.open(&path, Access::Read) {
            Ok(file) => tail.check(&*file, &path).map(|()| Some(tail)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(damaged(&self::path(directory), 0, "the segment that it belongs to is missing"))
            }
            Err(error) => Err(failed("open", &path)(error)),
        }
    }

    /// Writes the backup to `directory` durably.
    pub(crate) fn save(&self, disk: &dyn Disk, directory: &Path) -> Result<()> {
        fail::fail_point!("landfall-log::keep-no-tail", |_| Ok(()));
        durable::replace(disk, &path(directory), &self.encode())
    }

    /// Makes the bytes the end of their segment durably, and removes the backup.
    pub(crate) fn apply(&self, disk: &dyn Disk, directory: &Path) -> Result<()> {
        let path = segment::path(directory, self.base_offset);
        let file = disk.open(&path, Access::Write).map_err(failed("open", &path))?;
        let write = || -> io::Result<()> {
            file.write_at(&self.bytes, self.position)?;
            if file.length()? > self.end() {
                file.set_length(self.end())?;
            }
            file.sync()
        };
        write().map_err(failed("restore the last batches of", &path))?;
        durable::remove(disk, &self::path(directory))
    }

    /// Returns a read-only view of the segment's file as it will be once the backup is restored.
    pub(crate) fn overlay(self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(Overlay { file, tail: self })
    }

    fn end(&self) -> u64 {
        self.position + self.bytes.len() as u64
    }

    /// Checks that the segment in `file` is the one that the backup belongs to.
    fn check(&self, file: &dyn File, path: &Path) -> Result<()> {
        let header = SegmentHeader::read_any(file, path)?;
        if (header.salt, header.base_offset) != (self.salt, self.base_offset) {
            return Err(damaged(path, 0, "the backup of its last batches belongs to another segment"));
        }
        let bytes = file.length().map_err(failed("read the size of", path))?;
        if bytes < self.position {
            let sentence =
                format!("it ends before byte {}, where the backup of its last batches starts", self.position);
            return Err(damaged(path, bytes, sentence));
        }
        Ok(())
    }

    fn encode(&self) -> Vec<u8> {
        let mut content = Vec::with_capacity(HEADER_BYTES + self.bytes.len());
        content.extend_from_slice(&MAGIC);
        content.extend_from_slice(&[0; 4]);
        content.extend_from_slice(&self.salt.to_le_bytes());
        content.extend_from_slice(&[0; 4]);
        content.extend_from_slice(&self.base_offset.to_le_bytes());
        content.extend_from_slice(&self.position.to_le_bytes());
        content.extend_from_slice(&self.bytes);
        let checksum = crc32c::crc32c(&content[8..]);
        content[4..8].copy_from_slice(&checksum.to_le_bytes());
        content
    }

    fn decode(content: &[u8]) -> std::result::Result<Self, &'static str> {
        let Some((header, bytes)) = content.split_first_chunk::<HEADER_BYTES>() else {
            return Err("the file is too short for a backup of the last batches");
        };
        if header[0..4] != MAGIC {
            return Err("the file does not start like a backup of the last batches");
        }
        if crc32c::crc32c(&content[8..]).to_le_bytes() != header[4..8] {
            return Err("the checksum of the backup of the last batches is wrong");
        }
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| header[at + index]));
        let (salt, zero) = (number(8) as u32, number(8) >> 32);
        let (base_offset, position) = (number(16), number(24));
        let end = position.checked_add(bytes.len() as u64);
        if zero != 0 || position < segment::HEADER_BYTES as u64 || end.is_none() {
            return Err("the backup of the last batches does not fit into a segment");
        }
        Ok(Self { salt, base_offset, position, bytes: bytes.to_vec() })
    }
}

/// A segment with its backup applied, for reading.
#[derive(Debug)]
struct Overlay {
    file: Arc<dyn File>,
    tail: TailBackup,
}

impl File for Overlay {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        match position.checked_sub(self.tail.position) {
            Some(from) => {
                let rest = self.tail.bytes.get(from as usize..).unwrap_or_default();
                let length = rest.len().min(buffer.len());
                buffer[..length].copy_from_slice(&rest[..length]);
                Ok(length)
            }
            None => {
                let length = buffer.len().min((self.tail.position - position) as usize);
                self.file.read_at(&mut buffer[..length], position)
            }
        }
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn set_length(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.tail.end())
    }

    fn sync(&self) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::disk;
    use crate::storage::index::memory_disk::MemoryDisk;

    fn tail(header: &SegmentHeader, position: u64, bytes: &[u8]) -> TailBackup {
        TailBackup { salt: header.salt, base_offset: header.base_offset, position, bytes: bytes.to_vec() }
    }

    /// A segment with 100 bytes after its header.
    fn segment() -> (Arc<MemoryDisk>, PathBuf, SegmentHeader) {
        let (disk, folder) = MemoryDisk::new();
        let header = SegmentHeader::new(0, 7, None);
        disk.put(&segment::path(&folder, 7), [&header.encode()[..], &[1; 100]].concat());
        (disk, folder, header)
    }

    #[test]
    fn restored_backup_becomes_the_end_of_the_segment() {
        for (position, length) in [(64, 0), (64, 30), (100, 64), (164, 5), (150, 40)] {
            let (disk, folder, header) = segment();
            let tail = tail(&header, position, &vec![2; length]);
            tail.save(&*disk, &folder).unwrap();
            let expected = {
                let before = disk.content(&segment::path(&folder, 7));
                [&before[..position as usize], &vec![2; length]].concat()
            };
            let path = segment::path(&folder, 7);
            let overlay = tail.clone().overlay(disk.open(&path, Access::Read).unwrap());
            assert_eq!(disk::read(&*overlay, 0, 1000).unwrap(), expected);
            assert_eq!(overlay.length().unwrap(), expected.len() as u64);

            restore(&*disk, &folder).unwrap();
            assert_eq!(disk.content(&path), expected);
            assert_eq!(TailBackup::read(&*disk, &folder).unwrap(), None);
            restore(&*disk, &folder).unwrap();
            assert_eq!(disk.content(&path), expected);
        }
    }

    #[test]
    fn backup_of_another_segment_changes_nothing() {
        let (disk, folder, header) = segment();
        let other = SegmentHeader { salt: header.salt ^ 1, ..header };
        for wrong in [tail(&other, 64, b"x"), tail(&header, 165, b"x")] {
            let before = disk.content(&segment::path(&folder, 7));
            wrong.save(&*disk, &folder).unwrap();
            assert_eq!(restore(&*disk, &folder).unwrap_err().kind(), landfall_core::ErrorKind::Corrupt);
            assert_eq!(disk.content(&segment::path(&folder, 7)), before);
        }
    }

    proptest! {
        #[test]
        fn flipped_bit_of_a_backup_is_detected(
            (salt, base_offset, position) in (any::<u32>(), any::<u64>(), 64..u64::MAX / 2),
            bytes in proptest::collection::vec(any::<u8>(), 0..100),
            at in any::<proptest::sample::Index>(),
            bit in 0..8,
        ) {
            let tail = TailBackup { salt, base_offset, position, bytes };
            let mut content = tail.encode();
            prop_assert_eq!(TailBackup::decode(&content), Ok(tail));
            let at = at.index(content.len());
            content[at] ^= 1_u8 << bit;
            prop_assert!(TailBackup::decode(&content).is_err());
            content[at] ^= 1_u8 << bit;
            prop_assert!(TailBackup::decode(&content[..at]).is_err());
        }
    }
}
