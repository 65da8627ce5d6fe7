//! Replaces a final segment by a rewritten one. Compaction and repair use it.
//!
//! ```text
//! rewritten        the rewritten segment, written and synced
//! <base>.index     removed, because it describes the old one
//! <base>.segment   atomically replaced by `rewritten`
//! ```
//!
//! A crash at any point leaves either the old segment or the new one complete. Invariants: offsets stay the same,
//! without gaps, and so does the size that the successor recorded. The salt is new. So nothing derived from the old
//! file, and no copy of its bytes, is mistaken for a part of the new one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use landfall_core::{Error, ErrorKind, Result};

use crate::disk::{Access, Disk, File};
use crate::durable::{self, failed, sync_directory};
use crate::storage::batch::{self, BatchHeader};
use crate::storage::segment::{self, Extent, SegmentHeader};

/// The name of a rewritten segment before it replaces the old one. Not [`durable::UNFINISHED`]: it is written while
/// the writer thread runs and may use that name.
pub(crate) const REWRITTEN: &str = "rewritten";
/// Batches are buffered up to about this many bytes before they are written.
const WRITE_BYTES: usize = 256 * 1024;

/// A segment that is being rewritten. The old one stays unchanged until [`Rewriter::finish`].
#[derive(Debug)]
pub(crate) struct Rewriter<'a> {
    disk: &'a dyn Disk,
    directory: PathBuf,
    file: Arc<dyn File>,
    header: SegmentHeader,
    /// Bytes to write next, at `position`.
    buffered: Vec<u8>,
    position: u64,
    next_offset: u64,
}

impl<'a> Rewriter<'a> {
    /// Starts to rewrite the final segment with the header `old` and `old_bytes` bytes.
    pub(crate) fn begin(disk: &'a dyn Disk, directory: &Path, old: &SegmentHeader, old_bytes: u64) -> Result<Self> {
        let original_bytes = old.original_bytes.or(Some(old_bytes));
        Self::create(disk, directory, SegmentHeader { original_bytes, ..*old })
    }

    /// Starts a segment with this header and a new salt. A repair uses it for missing segments, and for the last one:
    /// a segment that grows again must not name an original size.
    pub(crate) fn create(disk: &'a dyn Disk, directory: &Path, header: SegmentHeader) -> Result<Self> {
        let fresh = SegmentHeader::new(header.partition, header.base_offset, header.previous);
        let header = SegmentHeader { salt: fresh.salt, ..header };
        let unfinished = directory.join(REWRITTEN);
        let file = disk.open(&unfinished, Access::Create).map_err(failed("create", &unfinished))?;
        let (buffered, next_offset) = (header.encode().to_vec(), header.base_offset);
        Ok(Self { disk, directory: directory.to_owned(), file, header, buffered, position: 0, next_offset })
    }

    /// The offset that the next batch must start with.
    pub(crate) fn next_offset(&self) -> u64 {
        self.next_offset
    }

    /// Appends a batch with the fields of `header` and `records`. Length and blank sectors are recomputed.
    pub(crate) fn batch(&mut self, header: &BatchHeader, records: &[u8]) -> Result<()> {
        if header.base_offset != self.next_offset {
            let (found, expected) = (header.base_offset, self.next_offset);
            let sentence = format!("a rewritten segment would continue with offset {found} instead of {expected}");
            return Err(Error::new(ErrorKind::Internal, sentence));
        }
        let mut batch = Vec::with_capacity(batch::FRAME_BYTES + records.len());
        batch.resize(batch::HEADER_BYTES, 0);
        batch.extend_from_slice(records);
        header.seal(&mut batch, self.header.salt, self.position + self.buffered.len() as u64);
        self.buffered.extend_from_slice(&batch);
        self.next_offset = header.next_offset();
        if self.buffered.len() >= WRITE_BYTES { self.write() } else { Ok(()) }
    }

    /// Marks all offsets up to `next_offset` as lost.
    pub(crate) fn mark_lost_up_to(&mut self, next_offset: u64, appended_at: i64) -> Result<()> {
        while self.next_offset < next_offset {
            let count = u32::try_from(next_offset - self.next_offset).unwrap_or(u32::MAX);
            self.batch(&BatchHeader::lost(self.next_offset, count, appended_at), &[])?;
        }
        Ok(())
    }

    /// The position of the next batch in the file.
    pub(crate) fn position(&self) -> u64 {
        self.position + self.buffered.len() as u64
    }

    /// Replaces the old segment durably and returns the extent of the new one.
    pub(crate) fn finish(self) -> Result<Extent> {
        let disk = self.disk;
        self.complete()?.install(disk)
    }

    /// Makes the new segment durable, beside the old one.
    pub(crate) fn complete(mut self) -> Result<CompletedRewrite> {
        self.write()?;
        self.file.sync().map_err(failed("sync", &self.directory.join(REWRITTEN)))?;
        Ok(CompletedRewrite { directory: self.directory, header: self.header, bytes: self.position })
    }

    fn write(&mut self) -> Result<()> {
        let write = self.file.write_at(&self.buffered, self.position);
        write.map_err(failed("write", &self.directory.join(REWRITTEN)))?;
        self.position += self.buffered.len() as u64;
        self.buffered.clear();
        Ok(())
    }
}

/// A complete rewritten segment that has not replaced the old one yet.
#[derive(Debug)]
pub(crate) struct CompletedRewrite {
    directory: PathBuf,
    pub(crate) header: SegmentHeader,
    pub(crate) bytes: u64,
}

impl CompletedRewrite {
    pub(crate) fn install(&self, disk: &dyn Disk) -> Result<Extent> {
        let (rewritten, base_offset) = (self.directory.join(REWRITTEN), self.header.base_offset);
        let path = segment::path(&self.directory, base_offset);
        // Removed durably before the rename, so that an index never lies beside a segment that it does not describe.
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
    use crate::storage::reader::{NextBatch, SegmentReader};

    fn batch(base_offset: u64, sequenced: Option<Sequenced>) -> BatchHeader {
        let (length, flags, blank_sectors) = (0, 0, 0);
        BatchHeader {
            length,
            count: 1,
            base_offset,
            synced_before: 3,
            appended_at: 77,
            sequenced,
            flags,
            blank_sectors,
        }
    }

    #[test]
    fn rewritten_segment_keeps_everything_but_its_salt() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path();
        let old = SegmentHeader::new(2, 5, Some(Extent { base_offset: 0, bytes: 900 }));
        old.create(&SystemDisk, directory).unwrap();
        std::fs::write(directory.join("00000000000000000005.index"), "stale").unwrap();

        let record = [&1_u32.to_le_bytes()[..], &[4]].concat();
        let producer = Some(Sequenced { producer: 1, epoch: 2, first: 3 });
        let mut rewriter = Rewriter::begin(&SystemDisk, directory, &old, 4321).unwrap();
        rewriter.batch(&batch(5, producer), &record).unwrap();
        rewriter.mark_lost_up_to(9 + u64::from(u32::MAX), 77).unwrap();
        let after = rewriter.next_offset();
        assert!(rewriter.batch(&batch(after + 1, None), &record).is_err(), "a gap is refused");
        rewriter.batch(&batch(after, None), &record).unwrap();
        let extent = rewriter.finish().unwrap();

        let mut reader = SegmentReader::open(&SystemDisk, directory, 2, 5).unwrap();
        let header = *reader.header();
        assert_ne!(header.salt, old.salt);
        assert_eq!(header, SegmentHeader { salt: header.salt, original_bytes: Some(4321), ..old });
        assert_eq!(reader.file_bytes().unwrap(), extent.bytes);
        let mut found = Vec::new();
        while let NextBatch::Batch(batch) = reader.next(extent.bytes).unwrap() {
            found.push(batch.header);
        }
        let offsets: Vec<_> = found.iter().map(|header| (header.base_offset, header.is_lost())).collect();
        assert_eq!(offsets, [(5, false), (6, true), (6 + u64::from(u32::MAX), true), (after, false)]);
        assert_eq!((found[0].sequenced, found[0].synced_before, found[0].appended_at), (producer, 3, 77));
        let left: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["00000000000000000005.segment"]);

        // A second rewrite still names the size that the successor recorded.
        let again = Rewriter::begin(&SystemDisk, directory, &header, extent.bytes).unwrap();
        again.finish().unwrap();
        let reader = SegmentReader::open(&SystemDisk, directory, 2, 5).unwrap();
        assert_eq!(reader.header().original_bytes, Some(4321));
    }
}
