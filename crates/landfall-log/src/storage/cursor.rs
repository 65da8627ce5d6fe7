//! Reads one partition across its segments.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use landfall_core::Result;

use crate::disk::Disk;
use crate::durable::is_missing;
use crate::storage::batch::Batch;
use crate::storage::index::BatchPosition;
use crate::storage::reader::{CHUNK_BYTES, NextBatch, SegmentReader};
use crate::storage::record::Record;
use crate::storage::segment::{Extent, SegmentHeader};

/// The segments of a partition, as far as they may be read now.
pub(crate) trait Extents: fmt::Debug + Send + Sync {
    fn disk(&self) -> &dyn Disk;

    fn partition(&self) -> u32;

    fn directory(&self) -> &Path;

    /// Returns the segment that holds or will hold `offset`: the last that starts at or before it (the first, if all
    /// start later). `None` while there is no segment.
    fn segment_for(&self, offset: u64) -> Result<Option<ReadableSegment>>;

    /// Returns where to start reading for `offset` in the segment with this header, if known.
    fn position_for(&self, header: &SegmentHeader, offset: u64) -> Option<BatchPosition>;

    /// Returns an offset before which no batch was appended at or after `time`.
    fn offset_near_time(&self, time: i64) -> u64;

    /// The offset after the last readable record; `None` if it is only known by reading.
    fn end(&self) -> Option<u64>;
}

/// A segment, and the state of its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadableSegment {
    pub(crate) extent: Extent,
    pub(crate) end_state: EndState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndState {
    /// Another segment follows: all of it was synced.
    Final,
    /// The last segment; every readable byte of it was synced.
    Synced,
    /// The last segment, and another process may be writing to it: an unfinished batch at its end is not an error.
    Growing,
}

/// Attempts before a defect in a file that another process may be writing is reported. The bytes may have been read
/// during a write, or reach beyond the file size read earlier.
pub(crate) const READ_ATTEMPTS: u32 = 10;

/// A read position in a partition.
#[derive(Debug)]
pub(crate) struct Cursor {
    extents: Arc<dyn Extents>,
    /// Records before this offset are skipped.
    from: u64,
    segment: Option<SegmentReader>,
    /// The state of that segment when there was last more to read.
    known: Option<ReadableSegment>,
}

impl Cursor {
    pub(crate) fn new(extents: Arc<dyn Extents>, from: u64) -> Self {
        Self { extents, from, segment: None, known: None }
    }

    /// Returns the next records, about one chunk; empty at the end. Blocks on the file.
    pub(crate) fn fetch(&mut self) -> Result<Vec<Record>> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        while bytes < CHUNK_BYTES {
            match self.next_batch() {
                Ok(Some(batch)) => {
                    bytes += batch.header.total_bytes();
                    records.extend(batch.records.into_iter().filter(|record| record.offset >= self.from));
                }
                Ok(None) => break,
                // Deliver the good records first; the next call returns the same error.
                Err(_) if !records.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(records)
    }

    /// Seeks to the end, reading only the last segment. Returns the end offset and the end position in the last
    /// segment. Blocks on the file.
    pub(crate) fn seek_end(&mut self) -> Result<(u64, u64)> {
        self.from = u64::MAX;
        while self.next_batch()?.is_some() {}
        let end = self.segment.as_ref().map_or((0, 0), |segment| (segment.next_offset(), segment.position()));
        self.from = end.0;
        Ok(end)
    }

    /// Returns the next batch; `None` at the end. Blocks on the file.
    pub(crate) fn next_batch(&mut self) -> Result<Option<Batch>> {
        let mut attempts = 0;
        loop {
            let known = self.known.take();
            let is_fresh = known.is_none();
            let offset = self.segment.as_ref().map_or(self.from, SegmentReader::next_offset);
            let found = known.map_or_else(|| self.extents.segment_for(offset), |known| Ok(Some(known)));
            let opened = found
                .and_then(|found| found.map(|found| self.open(found.extent.base_offset).map(|()| found)).transpose());
            let readable = match opened {
                // Retention removed the file after the segments were listed.
                Err(error) if is_missing(&error) && attempts < READ_ATTEMPTS => {
                    attempts += 1;
                    continue;
                }
                opened => opened?,
            };
            let Some(readable) = readable else { return Ok(None) };
            let Some(segment) = &mut self.segment else { return Ok(None) };
            // A final segment may have been rewritten, so the open file may have a different size.
            let end =
                if readable.end_state == EndState::Final { segment.final_bytes()? } else { readable.extent.bytes };
            match segment.next(end)? {
                NextBatch::Batch(batch) => {
                    self.known = (segment.position() < end).then_some(readable);
                    if batch.header.next_offset() > self.from {
                        return Ok(Some(batch));
                    }
                }
                // The segment may have grown or got a successor since.
                NextBatch::End | NextBatch::Bad(_) if !is_fresh => {}
                NextBatch::End if readable.end_state == EndState::Final => {
                    return Err(segment.damaged("the segment ends before the next one begins"));
                }
                NextBatch::End => return Ok(None),
                NextBatch::Bad(defect) => {
                    let may_be_unfinished = readable.end_state == EndState::Growing && defect.is_unfinished();
                    let is_unfinished = may_be_unfinished && !segment.was_synced(&segment.rest(end)?);
                    if is_unfinished {
                        return Ok(None);
                    }
                    attempts += 1;
                    if readable.end_state != EndState::Growing || attempts >= READ_ATTEMPTS {
                        return Err(segment.damaged(defect));
                    }
                }
            }
        }
    }

    /// Opens the segment that starts at `base_offset`, unless it is already open.
    fn open(&mut self, base_offset: u64) -> Result<()> {
        if self.segment.as_ref().is_some_and(|segment| segment.header().base_offset == base_offset) {
            return Ok(());
        }
        let mut segment =
            SegmentReader::open(self.extents.disk(), self.extents.directory(), self.extents.partition(), base_offset)?;
        if let Some(start) = self.extents.position_for(segment.header(), self.from) {
            segment.skip_to(start.position, start.offset);
        }
        self.segment = Some(segment);
        Ok(())
    }
}
