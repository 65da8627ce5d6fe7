//! Puts a rewritten segment in the place of a final one: what compaction and repair end with.
//!
//! ```text
//! rewritten        the rewritten segment, written and synced
//! <base>.index     removed, because it describes the old one
//! <base>.segment   replaced by `rewritten`, in one step
//! ```
//!
//! A crash at any point leaves the old segment or the new one, as a whole. Invariants: offsets stay as they were,
//! without a gap, and so does the size that the successor recorded. The salt is another one, so that nothing that was
//! derived from the old file, and no copy of its bytes, is ever taken for a part of the new one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use landfall_core::{Error, ErrorKind, Result};

use crate::disk::{Access, Disk, File};
use crate::durable::{self, failed, sync_directory};
use crate::storage::batch::{self, BatchHeader};
use crate::storage::segment::{self, Extent, SegmentHeader};

/// The name of a rewritten segment that is not in its place yet. Not [`durable::UNFINISHED`]: it is written while the
/// writer's thread goes on and may use that one.
pub(crate) const REWRITTEN: &str = "rewritten";
/// Batches are gathered up to about this many bytes before they are written.
const WRITE_BYTES: usize = 256 * 1024;

/// A segment that is being rewritten. Nothing has happened to the old one until [`Rewriter::finish`].
#[derive(Debug)]
pub(crate) struct Rewriter<'a> {
    disk: &'a dyn Disk,
    directory: PathBuf,
    file: Arc<dyn File>,
    header: SegmentHeader,
    /// What is to be written next, and where.
    gathered: Vec<u8>,
    position: u64,
    next_offset: u64,
}

impl<'a> Rewriter<'a> {
    /// Begins to rewrite the final segment with the header `old` and `old_bytes` bytes.
    pub(crate) fn begin(disk: &'a dyn Disk, directory: &Path, old: &SegmentHeader, old_bytes: u64) -> Result<Self> {
        let original_bytes = old.original_bytes.or(Some(old_bytes));
        Self::create(disk, directory, SegmentHeader { original_bytes, ..*old })
    }

    /// Begins a segment with this header but for the salt. A repair uses it for segments that are not there, or are
    /// the last: one that grows again must not name a size.
    pub(crate) fn create(disk: &'a dyn Disk, directory: &Path, header: SegmentHeader) -> Result<Self> {
        let fresh = SegmentHeader::new(header.partition, header.base_offset, header.previous);
        let header = SegmentHeader { salt: fresh.salt, ..header };
        let unfinished = directory.join(REWRITTEN);
        let file = disk.open(&unfinished, Access::Create).map_err(failed("create", &unfinished))?;
        let (gathered, next_offset) = (header.encode().to_vec(), header.base_offset);
        Ok(Self { disk, directory: directory.to_owned(), file, header, gathered, position: 0, next_offset })
    }

    /// The offset that the next batch must begin with.
    pub(crate) fn next_offset(&self) -> u64 {
        self.next_offset
    }

    /// Appends a batch with what `header` says of it (its length and its blank sectors are counted anew) and `records`.
    pub(crate) fn batch(&mut self, header: &BatchHeader, records: &[u8]) -> Result<()> {
        if header.base_offset != self.next_offset {
            let (found, expected) = (header.base_offset, self.next_offset);
            let sentence = format!("a rewritten segment would go on with offset {found} where {expected} belongs");
            return Err(Error::new(ErrorKind::Internal, sentence));
        }
        let mut batch = Vec::with_capacity(batch::FRAME_BYTES + records.len());
        batch.resize(batch::HEADER_BYTES, 0);
        batch.extend_from_slice(records);
        header.seal(&mut batch, self.header.salt, self.position + self.gathered.len() as u64);
        self.gathered.extend_from_slice(&batch);
        self.next_offset = header.next_offset();
        if self.gathered.len() >= WRITE_BYTES { self.write() } else { Ok(()) }
    }

    /// Says that all offsets up to `next_offset` are lost.
    pub(crate) fn lost_up_to(&mut self, next_offset: u64, taken: i64) -> Result<()> {
        while self.next_offset < next_offset {
            let count = u32::try_from(next_offset - self.next_offset).unwrap_or(u32::MAX);
            self.batch(&BatchHeader::lost(self.next_offset, count, taken), &[])?;
        }
        Ok(())
    }

    /// Where the next batch will stand in the file.
    pub(crate) fn position(&self) -> u64 {
        self.position + self.gathered.len() as u64
    }

    /// Puts the new segment in the place of the old one, durably; answers with how far it reaches.
    pub(crate) fn finish(self) -> Result<Extent> {
        let disk = self.disk;
        self.complete()?.put_in_place(disk)
    }

    /// Makes the new segment durable, beside the old one.
    pub(crate) fn complete(mut self) -> Result<Complete> {
        self.write()?;
        self.file.sync().map_err(failed("sync", &self.directory.join(REWRITTEN)))?;
        Ok(Complete { directory: self.directory, header: self.header, bytes: self.position })
    }

    fn write(&mut self) -> Result<()> {
        let write = self.file.write_at(&self.gathered, self.position);
        write.map_err(failed("write", &self.directory.join(REWRITTEN)))?;
        self.position += self.gathered.len() as u64;
        self.gathered.clear();
        Ok(())
    }
}

/// A rewritten segment that only has to be put in its place.
#[derive(Debug)]
pub(crate) struct Complete {
    directory: PathBuf,
    pub(crate) header: SegmentHeader,
    pub(crate) bytes: u64,
}

impl Complete {
    pub(crate) fn put_in_place(&self, disk: &dyn Disk) -> Result<Extent> {
        let (rewritten, base_offset) = (self.directory.join(REWRITTEN), self.header.base_offset);
        let path = segment::path(&self.directory, base_offset);
        // Gone for good before the rename, so that no index ever stands beside a file that it does not describe.
        durable::remove(disk, &path.with_extension("index"))?;
        disk.rename(&rewritten, &path).map_err(failed("replace", &path))?;
        sync_directory(disk, &self.directory)?;
        Ok(Extent { base_offset, bytes: self.bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SystemDisk;
    use crate::storage::batch::Sequenced;
    use crate::storage::reader::{Found, SegmentReader};

    fn batch(base_offset: u64, sequenced: Option<Sequenced>) -> BatchHeader {
        let (length, flags, blank_sectors) = (0, 0, 0);
        BatchHeader { length, count: 1, base_offset, synced_before: 3, taken: 77, sequenced, flags, blank_sectors }
    }

    #[test]
    fn a_rewritten_segment_keeps_everything_but_its_salt() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path();
        let old = SegmentHeader::new(2, 5, Some(Extent { base_offset: 0, bytes: 900 }));
        old.create(&SystemDisk, directory).unwrap();
        std::fs::write(directory.join("00000000000000000005.index"), "stale").unwrap();

        let record = [&1_u32.to_le_bytes()[..], &[4]].concat();
        let producer = Some(Sequenced { producer: 1, epoch: 2, first: 3 });
        let mut rewriter = Rewriter::begin(&SystemDisk, directory, &old, 4321).unwrap();
        rewriter.batch(&batch(5, producer), &record).unwrap();
        rewriter.lost_up_to(9 + u64::from(u32::MAX), 77).unwrap();
        let after = rewriter.next_offset();
        assert!(rewriter.batch(&batch(after + 1, None), &record).is_err(), "that would be a gap");
        rewriter.batch(&batch(after, None), &record).unwrap();
        let extent = rewriter.finish().unwrap();

        let mut reader = SegmentReader::open(&SystemDisk, directory, 2, 5).unwrap();
        let header = *reader.header();
        assert_ne!(header.salt, old.salt);
        assert_eq!(header, SegmentHeader { salt: header.salt, original_bytes: Some(4321), ..old });
        assert_eq!(reader.file_bytes().unwrap(), extent.bytes);
        let mut found = Vec::new();
        while let Found::Batch(batch) = reader.next(extent.bytes).unwrap() {
            found.push(batch.header);
        }
        let offsets: Vec<_> = found.iter().map(|header| (header.base_offset, header.is_lost())).collect();
        assert_eq!(offsets, [(5, false), (6, true), (6 + u64::from(u32::MAX), true), (after, false)]);
        assert_eq!((found[0].sequenced, found[0].synced_before, found[0].taken), (producer, 3, 77));
        let left: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["00000000000000000005.segment"]);

        // Rewritten once more it still names the size that its successor knows.
        let again = Rewriter::begin(&SystemDisk, directory, &header, extent.bytes).unwrap();
        again.finish().unwrap();
        let reader = SegmentReader::open(&SystemDisk, directory, 2, 5).unwrap();
        assert_eq!(reader.header().original_bytes, Some(4321));
    }
}
