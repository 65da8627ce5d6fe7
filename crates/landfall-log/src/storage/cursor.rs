//! Reads one partition across its segments.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use landfall_core::Result;

use crate::disk::Disk;
use crate::durable::is_missing;
use crate::storage::batch::Batch;
use crate::storage::index::Place;
use crate::storage::reader::{CHUNK_BYTES, Found, SegmentReader};
use crate::storage::record::Record;
use crate::storage::segment::{Extent, SegmentHeader};

/// Where a partition's records are, as far as they may be read now.
pub(crate) trait Extents: fmt::Debug + Send + Sync {
    fn disk(&self) -> &dyn Disk;

    fn partition(&self) -> u32;

    fn directory(&self) -> &Path;

    /// The segment that holds `offset`, or will: the last that begins at or before it (the first, if all begin
    /// later). `None` while there is no segment.
    fn segment_for(&self, offset: u64) -> Result<Option<Readable>>;

    /// Where to begin reading for `offset` in the segment with this header, if that is known.
    fn place_for(&self, header: &SegmentHeader, offset: u64) -> Option<Place>;

    /// An offset before which there is no batch that the log took at or after `time`.
    fn near_time(&self, time: i64) -> u64;

    /// The offset behind the last readable record; `None` if only reading can tell.
    fn end(&self) -> Option<u64>;
}

/// A segment, and what may be expected of its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Readable {
    pub(crate) extent: Extent,
    pub(crate) tail: Tail,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Another segment follows: all of it was synced.
    Final,
    /// The last segment, and every byte of it that may be read was synced.
    Synced,
    /// The last segment, and somebody may be writing to it: whatever is unfinished at its end is not there yet.
    Growing,
}

/// What is wrong in a file that somebody may be writing to was perhaps read while it was written, or reaches beyond the
/// size that the file had a moment ago. It is called wrong when it was found so this many times.
pub(crate) const LOOKS: u32 = 10;

/// A place in a partition.
#[derive(Debug)]
pub(crate) struct Cursor {
    extents: Arc<dyn Extents>,
    /// Records before this offset are not wanted.
    from: u64,
    segment: Option<SegmentReader>,
    /// What was known about that segment when there was last more to read.
    known: Option<Readable>,
}

impl Cursor {
    pub(crate) fn new(extents: Arc<dyn Extents>, from: u64) -> Self {
        Self { extents, from, segment: None, known: None }
    }

    /// The next records, about a chunk's worth; empty at the end. Blocks on the file.
    pub(crate) fn fetch(&mut self) -> Result<Vec<Record>> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        while bytes < CHUNK_BYTES {
            match self.next_batch() {
                Ok(Some(batch)) => {
                    bytes += batch.header.total_bytes();
                    records.extend(batch.records.into_iter().filter(|record| record.offset >= self.from));
                }
                Ok(None) => break,
                // What was good so far is delivered first; the next call meets the same error.
                Err(_) if !records.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(records)
    }

    /// Goes to the end, over nothing but the last segment, and answers with the offset there and how far the last
    /// segment reaches. Blocks on the file.
    pub(crate) fn seek_end(&mut self) -> Result<(u64, u64)> {
        self.from = u64::MAX;
        while self.next_batch()?.is_some() {}
        let end = self.segment.as_ref().map_or((0, 0), |segment| (segment.next_offset(), segment.position()));
        self.from = end.0;
        Ok(end)
    }

    /// The next batch; `None` at the end. Blocks on the file.
    pub(crate) fn next_batch(&mut self) -> Result<Option<Batch>> {
        let mut looks = 0;
        loop {
            let known = self.known.take();
            let is_fresh = known.is_none();
            let offset = self.segment.as_ref().map_or(self.from, SegmentReader::next_offset);
            let found = known.map_or_else(|| self.extents.segment_for(offset), |known| Ok(Some(known)));
            let opened = found
                .and_then(|found| found.map(|found| self.open(found.extent.base_offset).map(|()| found)).transpose());
            let readable = match opened {
                // Retention removed it between the look at the list and the look at the file.
                Err(error) if is_missing(&error) && looks < LOOKS => {
                    looks += 1;
                    continue;
                }
                opened => opened?,
            };
            let Some(readable) = readable else { return Ok(None) };
            let Some(segment) = &mut self.segment else { return Ok(None) };
            // A final segment may have been rewritten, and then the one that is open has a size of its own.
            let end = if readable.tail == Tail::Final { segment.final_bytes()? } else { readable.extent.bytes };
            match segment.next(end)? {
                Found::Batch(batch) => {
                    self.known = (segment.position() < end).then_some(readable);
                    if batch.header.next_offset() > self.from {
                        return Ok(Some(batch));
                    }
                }
                // The segment may have grown, or got a successor, since.
                Found::End | Found::Bad(_) if !is_fresh => {}
                Found::End if readable.tail == Tail::Final => {
                    return Err(segment.damaged("the segment ends before the next one begins"));
                }
                Found::End => return Ok(None),
                Found::Bad(defect) => {
                    let may_be_unfinished = readable.tail == Tail::Growing && defect.is_unfinished();
                    let is_unfinished = may_be_unfinished && !segment.was_synced(&segment.rest(end)?);
                    if is_unfinished {
                        return Ok(None);
                    }
                    looks += 1;
                    if readable.tail != Tail::Growing || looks >= LOOKS {
                        return Err(segment.damaged(defect));
                    }
                }
            }
        }
    }

    /// Opens the segment that begins with `base_offset`, unless it is the current one.
    fn open(&mut self, base_offset: u64) -> Result<()> {
        if self.segment.as_ref().is_some_and(|segment| segment.header().base_offset == base_offset) {
            return Ok(());
        }
        let mut segment =
            SegmentReader::open(self.extents.disk(), self.extents.directory(), self.extents.partition(), base_offset)?;
        if let Some(place) = self.extents.place_for(segment.header(), self.from) {
            segment.skip_to(place.position, place.offset);
        }
        self.segment = Some(segment);
        Ok(())
    }
}
