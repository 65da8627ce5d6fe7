//! The last segment of a partition, which is being written, and the preallocated space at its end.
//!
//! ```text
//! 0               end           zeros           allocated
//! │ batches ······│ written as  │ allocated,    │
//! │               │ zeros       │ reads as zero │
//! ```
//!
//! Everything after the last batch reads as zeros, and that is synced. The two kinds of space differ in the cost of
//! syncing a batch. Over written zeros only the batch itself reaches the disk, but every byte is written twice. Over
//! allocated space the file system must also update its metadata. So small batches, where the metadata would be most
//! of the work, get zeros. Large batches, where the zeros would be most of the work, do not.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use landfall_core::Result;

use crate::disk::{Access, File, write_zeros};
use crate::durable::{failed, fatal, is_full};
use crate::options::Options;
use crate::storage::cursor::Extents;
use crate::storage::index::IndexFile;
use crate::storage::partition::{Partition, Segment};
use crate::storage::segment::{self, Extent, SegmentHeader};

/// A write between two syncs is large from this fraction of a step on.
const LARGE_FRACTION: u64 = 8;
/// Steps that are allocated at once for large batches; that costs as much as one.
const STEPS_ALLOCATED: u64 = 8;

#[derive(Debug)]
pub(crate) struct OpenSegment {
    file: Arc<dyn File>,
    path: PathBuf,
    pub(crate) header: SegmentHeader,
    pub(crate) extent: Extent,
    /// End of the space that is allocated, reads as zeros, and is synced.
    allocated: u64,
    /// End of the written zeros.
    zeros: u64,
}

impl OpenSegment {
    pub(crate) fn create(partition: &Partition, header: &SegmentHeader) -> Result<Self> {
        let file = header.create(partition.disk(), partition.directory())?;
        let path = segment::path(partition.directory(), header.base_offset);
        let extent = Extent { base_offset: header.base_offset, bytes: segment::HEADER_BYTES as u64 };
        Ok(Self { file, path, header: *header, extent, allocated: extent.bytes, zeros: extent.bytes })
    }

    pub(crate) fn open(partition: &Partition, extent: Extent) -> Result<Self> {
        let path = segment::path(partition.directory(), extent.base_offset);
        let file = partition.disk().open(&path, Access::Write).map_err(failed("open", &path))?;
        let header = SegmentHeader::read(&*file, &path, partition.partition(), extent.base_offset)?;
        let allocated = file.length().map_err(failed("read the size of", &path))?;
        Ok(Self { file, path, header, extent, allocated, zeros: extent.bytes })
    }

    pub(crate) fn describe(&self, index: Option<Arc<IndexFile>>) -> Segment {
        Segment { extent: self.extent, created: self.header.created, index }
    }

    /// Whether there is space for `bytes` more, of the kind that suits a write of this size.
    pub(crate) fn has_room(&self, bytes: u64, options: &Options) -> bool {
        let wanted = self.extent.bytes + bytes;
        wanted <= self.allocated && (is_large(bytes, options) || wanted <= self.zeros)
    }

    /// Makes space for `bytes` more, of the kind that suits a write of this size. Everything must be synced.
    ///
    /// An error for which [`is_full`] holds means that the disk is full and nothing has changed.
    pub(crate) fn make_room(&mut self, bytes: u64, options: &Options) -> Result<()> {
        let (wanted, step) = (self.extent.bytes + bytes, options.preallocate_bytes);
        let up_to = |end: u64| end.min(options.segment_bytes).max(wanted);
        let next_step = wanted.next_multiple_of(step);
        if wanted <= self.allocated {
            // Only the zeros are missing. If even they need disk space, continue without them.
            return match self.fill(up_to(next_step).min(self.allocated)) {
                Err(error) if is_full(&error) => Ok(()),
                filled => filled,
            };
        }
        if is_large(bytes, options) {
            match self.allocate(up_to(next_step + (STEPS_ALLOCATED - 1) * step)) {
                // There may be space for one step.
                Err(error) if is_full(&error) => {}
                allocated => return allocated,
            }
        }
        self.fill(up_to(next_step))
    }

    /// Extends the file to `end` without writing to it.
    fn allocate(&mut self, end: u64) -> Result<()> {
        let extend = || -> io::Result<()> {
            self.file.allocate(self.allocated, end)?;
            fail::fail_point!("landfall-log::room-unsynced", |_| Ok(()));
            self.file.sync()
        };
        let extended = extend();
        self.finish_extension(extended, end)
    }

    /// Writes zeros after everything that was written, up to `end`.
    fn fill(&mut self, end: u64) -> Result<()> {
        let from = self.zeros.max(self.extent.bytes);
        let filled = write_zeros(&*self.file, from, end).and_then(|()| self.file.sync());
        self.finish_extension(filled, end)?;
        self.zeros = end;
        Ok(())
    }

    /// Records that the file was extended to `end`, or undoes a partial extension if the disk is full.
    fn finish_extension(&mut self, extended: io::Result<()>, end: u64) -> Result<()> {
        if let Err(error) = extended {
            let error = failed("make room in", &self.path)(error);
            if is_full(&error) {
                self.file.set_length(self.allocated).map_err(failed("cut", &self.path))?;
            }
            return Err(error);
        }
        self.allocated = self.allocated.max(end);
        Ok(())
    }

    pub(crate) fn write(&mut self, batch: &[u8]) -> Result<()> {
        let write = || -> io::Result<()> {
            fail::fail_point!("landfall-log::write", |_| Err(io::Error::other("injected by a failpoint")));
            self.file.write_at(batch, self.extent.bytes)
        };
        write().map_err(fatal("write to", &self.path))?;
        self.extent.bytes += batch.len() as u64;
        Ok(())
    }

    /// Truncates the unused space.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let cut = || -> io::Result<()> {
            self.file.set_length(self.extent.bytes)?;
            self.file.sync()
        };
        cut().map_err(fatal("finish", &self.path))?;
        (self.allocated, self.zeros) = (self.extent.bytes, self.extent.bytes);
        Ok(())
    }

    pub(crate) fn sync(&self) -> Result<()> {
        fail::fail_point!("landfall-log::sync", |_| {
            Err(fatal("sync", &self.path)(io::Error::other("injected by a failpoint")))
        });
        self.file.sync().map_err(fatal("sync", &self.path))
    }
}

/// Whether a write of `bytes` between two syncs is faster without zeros.
fn is_large(bytes: u64, options: &Options) -> bool {
    bytes >= options.preallocate_bytes.div_ceil(LARGE_FRACTION)
}
