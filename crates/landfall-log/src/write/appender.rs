//! Appends batches to one partition. Only the writer thread has appenders.
//!
//! Space for a batch is allocated, reads as zeros and is synced before the batch is written (`write/open_segment.rs`).
//! This makes the sync of a batch cheap and lets recovery distinguish a torn batch from a damaged one
//! (`storage/batch.rs`). It also reports a full disk before any byte of a batch is written, so the messages are
//! refused and the log stays open.

use std::sync::Arc;

use landfall_core::{MessageId, Result};

use crate::durable::is_full;
use crate::options::Options;
use crate::storage::batch::{self, BatchHeader, Sequenced};
use crate::storage::cursor::Extents;
use crate::storage::index::{Builder, IndexedSegment};
use crate::storage::partition::{Partition, Segment};
use crate::storage::recovery::producer_range;
use crate::storage::segment::{self, Extent, SegmentHeader};
use crate::write::buffer_pool::BufferPool;
use crate::write::open_segment::OpenSegment;
use crate::write::producers::Producers;

/// Maximum records of a segment. Sizes the index and a column of the id filter.
pub(crate) const SEGMENT_MESSAGES: u32 = 65_536;

/// Parts are merged into one batch up to this size. Above it, a separate batch is cheaper than copying the records.
const MERGED_BYTES: usize = 128 * 1024;

/// The encoded records of one publish call for one partition.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) partition: Arc<Partition>,
    /// Reserved space for the batch header, then the records.
    pub(crate) buffer: Vec<u8>,
    /// One per record.
    pub(crate) ids: Vec<MessageId>,
    /// Whether messages that the topic already holds are not stored again.
    pub(crate) deduplicate: bool,
    /// Append time, milliseconds since 1970.
    pub(crate) appended_at: i64,
    pub(crate) sequenced: Option<Sequenced>,
}

impl Part {
    pub(crate) fn count(&self) -> u32 {
        self.ids.len() as u32
    }

    pub(crate) fn records(&self) -> &[u8] {
        self.buffer.get(batch::HEADER_BYTES..).unwrap_or_default()
    }
}

/// The end of a partition. Unusable after any error except a full disk, because the state of the file is unknown.
#[derive(Debug)]
pub(crate) struct Appender {
    partition: Arc<Partition>,
    options: Options,
    buffers: Arc<BufferPool>,
    segment: Option<OpenSegment>,
    /// The batch to write next.
    pending: Option<Pending>,
    /// The offset after everything written or pending.
    next_offset: u64,
    /// Every offset below it is synced.
    synced_before: u64,
    /// Whether the current segment has unsynced writes.
    is_unsynced: bool,
    /// The state of each producer, including the pending batch.
    producers: Producers,
    /// Segments finished since the last [`Self::publish`].
    finished: Vec<Segment>,
    /// The end of the segment at the last preallocation.
    preallocated_at: u64,
}

/// A batch that is being filled; its space is allocated.
#[derive(Debug)]
struct Pending {
    buffer: Vec<u8>,
    /// The ids of its records, with their offsets.
    ids: Vec<(MessageId, u64)>,
    count: u32,
    base_offset: u64,
    appended_at: i64,
    sequenced: Option<Sequenced>,
}

impl Appender {
    pub(crate) fn open(partition: Arc<Partition>, options: Options, buffers: Arc<BufferPool>) -> Result<Self> {
        let last = partition.segments().last().map(|segment| segment.extent);
        let segment = match last {
            Some(extent) => Some(OpenSegment::open(&partition, extent)?),
            None => None,
        };
        let producers = recovered_producers(&partition);
        let next_offset = partition.next_offset();
        Ok(Self {
            partition,
            options,
            buffers,
            segment,
            pending: None,
            next_offset,
            synced_before: next_offset,
            is_unsynced: false,
            producers,
            finished: Vec::new(),
            preallocated_at: 0,
        })
    }

    /// Adds the records of `part` to the pending batch and returns the offset of the first. [`Self::write`] writes
    /// them.
    ///
    /// An error for which [`crate::durable::is_passing`] holds means that nothing has changed.
    pub(crate) fn push(&mut self, part: &mut Part) -> Result<u64> {
        if !self.merges(part) {
            self.write()?;
        }
        let pending = self.pending.as_ref().map_or(batch::FRAME_BYTES, |pending| 1 + pending.buffer.len());
        self.reserve(pending + part.records().len(), part.count())?;
        let (base_offset, count) = (self.next_offset, part.count());
        let pending = match &mut self.pending {
            Some(pending) => {
                pending.buffer.extend_from_slice(part.records());
                self.buffers.recycle(std::mem::take(&mut part.buffer));
                pending.count += count;
                pending.appended_at = pending.appended_at.max(part.appended_at);
                pending
            }
            None => {
                let (buffer, appended_at, ids) = (std::mem::take(&mut part.buffer), part.appended_at, Vec::new());
                self.pending.insert(Pending { buffer, ids, count, base_offset, appended_at, sequenced: part.sequenced })
            }
        };
        // Recorded regardless of the topic's settings: they may change, and an index is built from its segment alone.
        pending.ids.extend(part.ids.iter().copied().zip(base_offset..));
        if let Some(Sequenced { producer, epoch, first }) = part.sequenced {
            self.producers.record(producer, epoch, first, u64::from(count));
        }
        self.next_offset += u64::from(count);
        Ok(base_offset)
    }

    /// Whether `part` fits into the pending batch. A part of an idempotent producer gets its own batch.
    fn merges(&self, part: &Part) -> bool {
        self.pending.as_ref().is_none_or(|pending| {
            pending.sequenced.is_none()
                && part.sequenced.is_none()
                && pending.buffer.len() + part.records().len() <= self.options.batch_limit().min(MERGED_BYTES)
        })
    }

    /// Writes the pending batch without syncing it.
    pub(crate) fn write(&mut self) -> Result<()> {
        let (Some(mut pending), Some(segment)) = (self.pending.take(), &mut self.segment) else { return Ok(()) };
        let header = BatchHeader {
            length: 0,
            count: pending.count,
            base_offset: pending.base_offset,
            synced_before: self.synced_before,
            appended_at: pending.appended_at,
            sequenced: pending.sequenced,
            flags: 0,
            blank_sectors: 0,
        };
        let position = segment.extent.bytes;
        header.seal(&mut pending.buffer, segment.header.salt, position);
        segment.write(&pending.buffer)?;
        self.is_unsynced = true;
        let mut unfinished = self.partition.unfinished();
        unfinished.add_batch(header.base_offset, position, header.appended_at);
        pending.ids.iter().for_each(|(id, offset)| unfinished.add_id(*id, *offset));
        if let Some(sequenced) = header.sequenced {
            unfinished.add_range(producer_range(&header, sequenced));
        }
        drop(unfinished);
        self.buffers.recycle(pending.buffer);
        fail::fail_point!("landfall-log::serve-unsynced", |_| {
            self.synced_before = self.next_offset;
            self.publish();
            Ok(())
        });
        Ok(())
    }

    /// Syncs everything that was written.
    pub(crate) fn sync(&mut self) -> Result<()> {
        if let Some(segment) = &self.segment
            && std::mem::take(&mut self.is_unsynced)
        {
            segment.sync()?;
        }
        let pending = self.pending.as_ref().map(|pending| pending.base_offset);
        self.synced_before = pending.unwrap_or(self.next_offset);
        Ok(())
    }

    /// Preallocates as much space as was written since the last call, if it fits into the segment. The next publisher
    /// then does not wait for it. Everything must be synced.
    ///
    /// Ignores a full disk: the next append that needs the space reports it.
    pub(crate) fn preallocate(&mut self) -> Result<()> {
        let Some(segment) = &self.segment else { return Ok(()) };
        let end = segment.extent.bytes;
        let written =
            end.saturating_sub(std::mem::replace(&mut self.preallocated_at, end)).min(self.options.preallocate_bytes);
        let fits = end + written <= self.options.segment_bytes;
        if written == 0 || !fits || self.is_unsynced || self.pending.is_some() {
            return Ok(());
        }
        match self.extend(written) {
            Err(error) if is_full(&error) => Ok(()),
            extended => extended,
        }
    }

    /// Truncates the preallocated space. Everything must be synced.
    pub(crate) fn close(&mut self) -> Result<()> {
        self.segment.as_mut().map_or(Ok(()), OpenSegment::finish)
    }

    /// Makes everything that was synced visible to readers.
    pub(crate) fn publish(&mut self) {
        let mut segments = std::mem::take(&mut self.finished);
        segments.extend(self.segment.as_ref().map(|segment| segment.describe(None)));
        self.partition.extend(segments, self.synced_before);
    }

    /// The offset of the next record.
    pub(crate) fn next_offset(&self) -> u64 {
        self.next_offset
    }

    pub(crate) fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }

    /// The state of each producer, including the pending batch.
    pub(crate) fn producers(&self) -> &Producers {
        &self.producers
    }

    /// The segments finished since the last [`Self::publish`].
    pub(crate) fn finished(&self) -> &[Segment] {
        &self.finished
    }

    /// Allocates space for a batch of `bytes`, which adds `more` records to the pending ones. Starts a new segment if
    /// needed.
    fn reserve(&mut self, bytes: usize, more: u32) -> Result<()> {
        let bytes = bytes as u64;
        if let Some(segment) = &self.segment {
            let is_empty = segment.extent.bytes == segment::HEADER_BYTES as u64;
            let records = self.next_offset + u64::from(more) - segment.extent.base_offset;
            let fits = segment.extent.bytes + bytes <= self.options.segment_bytes;
            let has_room = fits && records <= u64::from(SEGMENT_MESSAGES);
            if !is_empty && !has_room {
                // The pending batch goes into the old segment, and this part starts the next batch.
                let frame = self.pending.as_ref().map_or(0, |pending| pending.buffer.len() - batch::HEADER_BYTES);
                self.write()?;
                self.roll()?;
                return self.extend(bytes - frame as u64);
            }
        } else {
            self.begin_segment(None)?;
        }
        self.extend(bytes)
    }

    /// Finishes the current segment and starts the next one.
    pub(crate) fn roll(&mut self) -> Result<()> {
        self.sync()?;
        let Some(segment) = &mut self.segment else { return Ok(()) };
        segment.finish()?;
        let indexed = IndexedSegment {
            salt: segment.header.salt,
            partition: segment.header.partition,
            end_offset: self.next_offset,
            segment_bytes: segment.extent.bytes,
        };
        let (disk, directory) = (self.partition.shared_disk(), self.partition.directory());
        let producers = self.producers.snapshot();
        // Taken out of the lock, so that no reader waits for the disk.
        let mut builder = std::mem::replace(&mut *self.partition.unfinished(), Builder::new(self.next_offset));
        let finished = builder.finish(disk, directory, indexed, &producers);
        let finished = finished.map(|index| segment.describe(Some(Arc::new(index))));
        let begun = finished.and_then(|finished| self.begin_segment(Some(finished.extent)).map(|()| finished));
        // If there is no space for the next segment, keep appending to this one and finish it later.
        self.finished.push(begun.inspect_err(|_| *self.partition.unfinished() = builder)?);
        Ok(())
    }

    fn begin_segment(&mut self, previous: Option<Extent>) -> Result<()> {
        let header = SegmentHeader::new(self.partition.partition(), self.next_offset, previous);
        self.segment = Some(OpenSegment::create(&self.partition, &header)?);
        Ok(())
    }

    /// Allocates `bytes` more space after the written bytes.
    fn extend(&mut self, bytes: u64) -> Result<()> {
        if self.segment.as_ref().is_none_or(|segment| segment.has_room(bytes, &self.options)) {
            return Ok(());
        }
        // Syncing the allocation may fail because the disk is full. Sync first, so that no message depends on that
        // call.
        self.sync()?;
        match &mut self.segment {
            Some(segment) => segment.make_room(bytes, &self.options),
            None => Ok(()),
        }
    }
}

fn recovered_producers(partition: &Partition) -> Producers {
    fail::fail_point!("landfall-log::forget-sequences", |_| Producers::default());
    Producers::from_snapshot(partition.recovered_producers())
}
