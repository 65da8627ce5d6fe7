//! Builds the index of a segment while it is written or scanned.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use landfall_core::{Error, ErrorKind, MessageId, Result};

use super::ProducerRange;
use super::entry::{Id, number};
use super::file::{Content, IndexFile, IndexedSegment};
use super::positions::{BatchPosition, PositionIndex};
use crate::disk::Disk;
use crate::write::producers::{ProducerId, ProducerState};

/// The index of an unfinished segment.
#[derive(Debug)]
pub(crate) struct Builder {
    base_offset: u64,
    pub(super) positions: PositionIndex,
    /// In the order of their offsets.
    ids: Vec<Id>,
    ranges: BTreeMap<(ProducerId, u64), ProducerRange>,
    /// The range that was added last: only that one can be extended.
    last_range: Option<(ProducerId, u64)>,
    /// An offset that is too far from the first one for the format.
    too_far: Option<u64>,
}

impl Builder {
    pub(crate) fn new(base_offset: u64) -> Self {
        let (positions, ids, ranges) = (PositionIndex::new(), Vec::new(), BTreeMap::new());
        Self { base_offset, positions, ids, ranges, last_range: None, too_far: None }
    }

    pub(crate) fn base_offset(&self) -> u64 {
        self.base_offset
    }

    /// Adds a batch that starts with `offset` at byte `position` of the segment and was appended at `time`. Batches
    /// are added in order.
    pub(crate) fn add_batch(&mut self, offset: u64, position: u64, time: i64) {
        self.positions.add(offset, position, time);
    }

    /// Adds the id of the message at `offset`. Offsets are added in order; a repeated id keeps its first offset.
    pub(crate) fn add_id(&mut self, id: MessageId, offset: u64) {
        match offset.checked_sub(self.base_offset).and_then(|delta| u32::try_from(delta).ok()) {
            Some(delta) => self.ids.push(Id { id, delta }),
            None => self.too_far = Some(offset),
        }
    }

    /// Adds messages of a producer. A range that continues the previous one is merged into it.
    pub(crate) fn add_range(&mut self, range: ProducerRange) {
        if let Some(last) = self.last_range.and_then(|key| self.ranges.get_mut(&key))
            && last.try_extend(&range)
        {
            return;
        }
        let key = (range.producer, range.first_sequence);
        self.ranges.insert(key, range);
        self.last_range = Some(key);
    }

    /// The latest append time of the segment; `None` if it has no batches.
    pub(crate) fn latest_time(&self) -> Option<i64> {
        (!self.positions.entries.is_empty()).then_some(self.positions.latest_time)
    }

    /// Calls `each` with every id and its offset.
    pub(crate) fn for_each_id(&self, mut each: impl FnMut(MessageId, u64)) {
        self.ids.iter().for_each(|entry| each(entry.id, self.base_offset + u64::from(entry.delta)));
    }

    /// Returns where to start reading for `offset`: at or before its batch. `None` while there is no batch.
    pub(crate) fn position_for(&self, offset: u64) -> Option<BatchPosition> {
        self.positions.for_offset(offset)
    }

    /// Returns where to start reading for the first batch appended at or after `time`. `None` if there is none.
    pub(crate) fn position_at_time(&self, time: i64) -> Option<BatchPosition> {
        self.positions.at_time(time)
    }

    /// Returns the offsets of the producer's messages from this sequence on, as long as they follow without a gap.
    /// `None` if the sequence is not in this segment.
    pub(crate) fn offsets_from(&self, producer: ProducerId, sequence: u64) -> Option<Range<u64>> {
        let (_, range) = self.ranges.range((producer, 0)..=(producer, sequence)).next_back()?;
        range.offsets_from(sequence)
    }

    /// Writes the index of the segment, which is final now, durably. It may be retried after an error.
    ///
    /// `producers` is the state of the partition's producers at the segment's end.
    pub(crate) fn finish(
        &mut self,
        disk: &Arc<dyn Disk>,
        directory: &Path,
        segment: IndexedSegment,
        producers: &[ProducerState],
    ) -> Result<IndexFile> {
        if let Some(offset) = self.too_far {
            let sentence = format!("offset {offset} does not fit into a segment that starts at {}", self.base_offset);
            return Err(Error::new(ErrorKind::Internal, sentence));
        }
        // Time-ordered ids are nearly sorted, which a stable sort exploits. It also keeps the first of two equal ids
        // in front.
        self.ids.sort_by_key(|entry| number(entry.id));
        self.ids.dedup_by_key(|entry| entry.id);
        let ranges: Vec<_> = self.ranges.values().copied().collect();
        let mut producers = producers.to_vec();
        producers.sort_unstable_by_key(|state| state.producer);
        let content = Content { positions: &self.positions, ids: &self.ids, ranges: &ranges, producers: &producers };
        IndexFile::write(disk, directory, self.base_offset, segment, content)
    }
}
