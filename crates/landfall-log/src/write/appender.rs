//! Writes batches to the end of one partition. Only the writer's thread has appenders.
//!
//! Before a batch is written its room is there, reads as zeros, and is synced (`write/open_segment.rs`). That makes the
//! sync of a batch cheap, it is what lets recovery tell a torn batch from a damaged one (`storage/batch.rs`), and a full
//! disk shows before anything of a batch is written: the messages are refused, and the log goes on.

use std::sync::Arc;

use landfall_core::{MessageId, Result};

use crate::durable::is_full;
use crate::options::Options;
use crate::storage::batch::{self, BatchHeader, Sequenced};
use crate::storage::cursor::Extents;
use crate::storage::index::{Builder, Described};
use crate::storage::partition::{Partition, Segment};
use crate::storage::recovery::range_of;
use crate::storage::segment::{self, Extent, SegmentHeader};
use crate::write::buffers::Buffers;
use crate::write::open_segment::OpenSegment;
use crate::write::producers::Producers;

/// A segment is finished with this many records: what an index and a column of the filter of ids are made for.
pub(crate) const SEGMENT_MESSAGES: u32 = 65_536;

/// Parts are merged into one batch up to this size. Beyond it a batch of its own is cheaper than to copy the records.
const MERGED_BYTES: usize = 128 * 1024;

/// Records of one publish call for one partition, encoded one after the other.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) partition: Arc<Partition>,
    /// Room for the header of a batch, and the records.
    pub(crate) buffer: Vec<u8>,
    /// One for each record.
    pub(crate) ids: Vec<MessageId>,
    /// Whether a message that the topic holds already is not stored again.
    pub(crate) deduplicate: bool,
    /// When the log took it.
    pub(crate) taken: i64,
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

/// The end of a partition. After an error other than a full disk it must not be used again: nobody knows what was
/// written.
#[derive(Debug)]
pub(crate) struct Appender {
    partition: Arc<Partition>,
    options: Options,
    buffers: Arc<Buffers>,
    segment: Option<OpenSegment>,
    /// What is to be written next.
    pending: Option<Pending>,
    /// Behind everything that was written or is pending.
    next_offset: u64,
    /// Every offset below it is synced.
    synced_before: u64,
    /// Whether anything was written to the current segment since it was last synced.
    is_unsynced: bool,
    /// How far producers have come, with what is pending.
    producers: Producers,
    /// Segments that were finished since readers were last told.
    finished: Vec<Segment>,
    /// Where the segment ended when room was last made ahead.
    ahead_of: u64,
}

/// A batch that is being filled; its room is reserved.
#[derive(Debug)]
struct Pending {
    buffer: Vec<u8>,
    /// The ids of its records, with their offsets.
    ids: Vec<(MessageId, u64)>,
    count: u32,
    base_offset: u64,
    taken: i64,
    sequenced: Option<Sequenced>,
}

impl Appender {
    pub(crate) fn open(partition: Arc<Partition>, options: Options, buffers: Arc<Buffers>) -> Result<Self> {
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
            ahead_of: 0,
        })
    }

    /// Takes the records of `part` and answers with the offset of the first. They are written with [`Self::write`].
    ///
    /// An error for which [`is_full`] holds means that there is no room and nothing has changed.
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
                self.buffers.give_back(std::mem::take(&mut part.buffer));
                pending.count += count;
                pending.taken = pending.taken.max(part.taken);
                pending
            }
            None => {
                let (buffer, taken, ids) = (std::mem::take(&mut part.buffer), part.taken, Vec::new());
                self.pending.insert(Pending { buffer, ids, count, base_offset, taken, sequenced: part.sequenced })
            }
        };
        // Whatever the topic's settings are now: they may change, and an index is made of its segment alone.
        pending.ids.extend(part.ids.iter().copied().zip(base_offset..));
        if let Some(Sequenced { producer, epoch, first }) = part.sequenced {
            self.producers.record(producer, epoch, first, u64::from(count));
        }
        self.next_offset += u64::from(count);
        Ok(base_offset)
    }

    /// Whether `part` goes into the pending batch. What has a producer's sequence gets a batch of its own.
    fn merges(&self, part: &Part) -> bool {
        self.pending.as_ref().is_none_or(|pending| {
            pending.sequenced.is_none()
                && part.sequenced.is_none()
                && pending.buffer.len() + part.records().len() <= self.options.batch_limit().min(MERGED_BYTES)
        })
    }

    /// Writes what is pending. Nothing is synced.
    pub(crate) fn write(&mut self) -> Result<()> {
        let (Some(mut pending), Some(segment)) = (self.pending.take(), &mut self.segment) else { return Ok(()) };
        let header = BatchHeader {
            length: 0,
            count: pending.count,
            base_offset: pending.base_offset,
            synced_before: self.synced_before,
            taken: pending.taken,
            sequenced: pending.sequenced,
            flags: 0,
            blank_sectors: 0,
        };
        let position = segment.extent.bytes;
        header.seal(&mut pending.buffer, segment.header.salt, position);
        segment.write(&pending.buffer)?;
        self.is_unsynced = true;
        let mut unfinished = self.partition.unfinished();
        unfinished.add_batch(header.base_offset, position, header.taken);
        pending.ids.iter().for_each(|(id, offset)| unfinished.add_id(*id, *offset));
        if let Some(sequenced) = header.sequenced {
            unfinished.add_range(range_of(&header, sequenced));
        }
        drop(unfinished);
        self.buffers.give_back(pending.buffer);
        fail::fail_point!("landfall-log::serve-unsynced", |_| {
            self.synced_before = self.next_offset;
            self.publish();
            Ok(())
        });
        Ok(())
    }

    /// Makes everything that was written durable.
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

    /// Makes room for as much as was written since this was last called, if it is not there yet and fits into the
    /// segment: who sends the next messages need not wait for it. Everything must be synced.
    ///
    /// That the disk is full is not told here: it shows once somebody needs the room.
    pub(crate) fn make_room_ahead(&mut self) -> Result<()> {
        let Some(segment) = &self.segment else { return Ok(()) };
        let end = segment.extent.bytes;
        let written =
            end.saturating_sub(std::mem::replace(&mut self.ahead_of, end)).min(self.options.preallocate_bytes);
        let fits = end + written <= self.options.segment_bytes;
        if written == 0 || !fits || self.is_unsynced || self.pending.is_some() {
            return Ok(());
        }
        match self.extend(written) {
            Err(error) if is_full(&error) => Ok(()),
            extended => extended,
        }
    }

    /// Cuts off the room that was made for more. Everything must be synced.
    pub(crate) fn close(&mut self) -> Result<()> {
        self.segment.as_mut().map_or(Ok(()), OpenSegment::finish)
    }

    /// Lets readers see everything that was synced.
    pub(crate) fn publish(&mut self) {
        let mut segments = std::mem::take(&mut self.finished);
        segments.extend(self.segment.as_ref().map(|segment| segment.described(None)));
        self.partition.extend(segments, self.synced_before);
    }

    /// The offset that the next record gets.
    pub(crate) fn next_offset(&self) -> u64 {
        self.next_offset
    }

    pub(crate) fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }

    /// How far producers have come, with what is pending.
    pub(crate) fn producers(&self) -> &Producers {
        &self.producers
    }

    /// The segments that were finished since [`Self::publish`].
    pub(crate) fn finished(&self) -> &[Segment] {
        &self.finished
    }

    /// Sees to it that the batch with `bytes` and `more` records beyond the pending ones has room.
    fn reserve(&mut self, bytes: usize, more: u32) -> Result<()> {
        let bytes = bytes as u64;
        if let Some(segment) = &self.segment {
            let is_empty = segment.extent.bytes == segment::HEADER_BYTES as u64;
            let records = self.next_offset + u64::from(more) - segment.extent.base_offset;
            let fits = segment.extent.bytes + bytes <= self.options.segment_bytes;
            let has_room = fits && records <= u64::from(SEGMENT_MESSAGES);
            if !is_empty && !has_room {
                // The batch that is pending goes into the old segment, and this part begins the next batch.
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

    /// Finishes the current segment and begins the next one.
    pub(crate) fn roll(&mut self) -> Result<()> {
        self.sync()?;
        let Some(segment) = &mut self.segment else { return Ok(()) };
        segment.finish()?;
        let described = Described {
            salt: segment.header.salt,
            partition: segment.header.partition,
            end_offset: self.next_offset,
            segment_bytes: segment.extent.bytes,
        };
        let (disk, directory) = (self.partition.shared_disk(), self.partition.directory());
        let producers = self.producers.snapshot();
        // Taken out, so that no reader waits for the disk.
        let mut builder = std::mem::replace(&mut *self.partition.unfinished(), Builder::new(self.next_offset));
        let finished = builder.finish(disk, directory, described, &producers);
        let finished = finished.map(|index| segment.described(Some(Arc::new(index))));
        let begun = finished.and_then(|finished| self.begin_segment(Some(finished.extent)).map(|()| finished));
        // Without room for the next segment this one goes on, and is finished another time.
        self.finished.push(begun.inspect_err(|_| *self.partition.unfinished() = builder)?);
        Ok(())
    }

    fn begin_segment(&mut self, previous: Option<Extent>) -> Result<()> {
        let header = SegmentHeader::new(self.partition.partition(), self.next_offset, previous);
        self.segment = Some(OpenSegment::create(&self.partition, &header)?);
        Ok(())
    }

    /// Makes room for `bytes` more behind what was written.
    fn extend(&mut self, bytes: u64) -> Result<()> {
        if self.segment.as_ref().is_none_or(|segment| segment.has_room(bytes, &self.options)) {
            return Ok(());
        }
        // The sync of the room may fail for want of it, and nothing else may hang on it.
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
