//! The last segment of a partition, which is written to, and the room at its end.
//!
//! ```text
//! 0              end          zeros         allocated
//! │ batches ······│ zeros that  │ set aside:   │
//! │               │ were written│ reads as zero│
//! ```
//!
//! All of it reads as zeros behind the last batch, and that is synced. The two kinds differ in what the sync of a batch
//! costs. Over zeros that were written, nothing but the batch has to reach the disk; but then every byte is written twice.
//! Over what was only set aside the file system has to note, too, that there is something now. So small batches get
//! zeros, where that note would be most of the work, and large ones do not, where the zeros would be.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use landfall_core::Result;

use crate::disk::{Access, File, write_zeros};
use crate::durable::{failed, failed_for_good, is_full};
use crate::options::Options;
use crate::storage::cursor::Extents;
use crate::storage::index::IndexFile;
use crate::storage::partition::{Partition, Segment};
use crate::storage::segment::{self, Extent, SegmentHeader};

/// What is written between two syncs is large from this part of a step on.
const LARGE: u64 = 8;
/// So many steps are set aside at once for what is large: that costs as much as one.
const STEPS_SET_ASIDE: u64 = 8;

#[derive(Debug)]
pub(crate) struct OpenSegment {
    file: Arc<dyn File>,
    path: PathBuf,
    pub(crate) header: SegmentHeader,
    pub(crate) extent: Extent,
    /// Up to here there is room behind what was written, which reads as zeros, and that is synced.
    allocated: u64,
    /// Up to here zeros were written.
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
        let allocated = file.length().map_err(failed("look at", &path))?;
        Ok(Self { file, path, header, extent, allocated, zeros: extent.bytes })
    }

    pub(crate) fn described(&self, index: Option<Arc<IndexFile>>) -> Segment {
        Segment { extent: self.extent, created: self.header.created, index }
    }

    /// Whether there is room for `bytes` more, of the kind that is best for so many.
    pub(crate) fn has_room(&self, bytes: u64, options: &Options) -> bool {
        let wanted = self.extent.bytes + bytes;
        wanted <= self.allocated && (is_large(bytes, options) || wanted <= self.zeros)
    }

    /// Makes room for `bytes` more, of the kind that is best for so many. Everything must be synced.
    ///
    /// An error for which [`is_full`] holds means that there is none and nothing has changed.
    pub(crate) fn make_room(&mut self, bytes: u64, options: &Options) -> Result<()> {
        let (wanted, step) = (self.extent.bytes + bytes, options.preallocate_bytes);
        let up_to = |end: u64| end.min(options.segment_bytes).max(wanted);
        let next_step = wanted.next_multiple_of(step);
        if wanted <= self.allocated {
            // Only the zeros are missing. Where even they need room, it goes on without them.
            return match self.fill(up_to(next_step).min(self.allocated)) {
                Err(error) if is_full(&error) => Ok(()),
                filled => filled,
            };
        }
        if is_large(bytes, options) {
            match self.set_aside(up_to(next_step + (STEPS_SET_ASIDE - 1) * step)) {
                // There may be room for one step.
                Err(error) if is_full(&error) => {}
                set_aside => return set_aside,
            }
        }
        self.fill(up_to(next_step))
    }

    /// Extends the file up to `end`, without writing to it.
    fn set_aside(&mut self, end: u64) -> Result<()> {
        let set_aside = || -> io::Result<()> {
            self.file.set_aside(self.allocated, end)?;
            fail::fail_point!("landfall-log::room-unsynced", |_| Ok(()));
            self.file.sync()
        };
        let set_aside = set_aside();
        self.extended(set_aside, end)
    }

    /// Fills the file with zeros up to `end`, behind everything that was written.
    fn fill(&mut self, end: u64) -> Result<()> {
        let from = self.zeros.max(self.extent.bytes);
        let filled = write_zeros(&*self.file, from, end).and_then(|()| self.file.sync());
        self.extended(filled, end)?;
        self.zeros = end;
        Ok(())
    }

    /// Notes that the file was extended up to `end`, or takes back what was done of that for want of room.
    fn extended(&mut self, extended: io::Result<()>, end: u64) -> Result<()> {
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
            fail::fail_point!("landfall-log::write", |_| Err(io::Error::other("a failpoint said so")));
            self.file.write_at(batch, self.extent.bytes)
        };
        write().map_err(failed_for_good("write to", &self.path))?;
        self.extent.bytes += batch.len() as u64;
        Ok(())
    }

    /// Cuts off the room that was not needed.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let cut = || -> io::Result<()> {
            self.file.set_length(self.extent.bytes)?;
            self.file.sync()
        };
        cut().map_err(failed_for_good("finish", &self.path))?;
        (self.allocated, self.zeros) = (self.extent.bytes, self.extent.bytes);
        Ok(())
    }

    pub(crate) fn sync(&self) -> Result<()> {
        fail::fail_point!("landfall-log::sync", |_| {
            Err(failed_for_good("sync", &self.path)(io::Error::other("a failpoint said so")))
        });
        self.file.sync().map_err(failed_for_good("sync", &self.path))
    }
}

/// Whether so many bytes, written between two syncs, are better off without zeros.
fn is_large(bytes: u64, options: &Options) -> bool {
    bytes >= options.preallocate_bytes.div_ceil(LARGE)
}
