//! Collects the index of a segment while it is written or scanned.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use landfall_core::{Error, ErrorKind, MessageId, Result};

use super::ProducerRange;
use super::entry::{Id, number};
use super::file::{Content, Described, IndexFile};
use super::places::{Place, Places};
use crate::disk::Disk;
use crate::write::producers::{ProducerId, ProducerState};

/// The index of an unfinished segment.
#[derive(Debug)]
pub(crate) struct Builder {
    base_offset: u64,
    pub(super) places: Places,
    /// In the order of their offsets.
    ids: Vec<Id>,
    ranges: BTreeMap<(ProducerId, u64), ProducerRange>,
    /// The range that was added last: only that one can go on.
    last_range: Option<(ProducerId, u64)>,
    /// An offset that is too far from the first for the format.
    too_far: Option<u64>,
}

impl Builder {
    pub(crate) fn new(base_offset: u64) -> Self {
        let (places, ids, ranges) = (Places::new(), Vec::new(), BTreeMap::new());
        Self { base_offset, places, ids, ranges, last_range: None, too_far: None }
    }

    pub(crate) fn base_offset(&self) -> u64 {
        self.base_offset
    }

    /// A batch that begins with `offset` at byte `position` of the segment and was taken at `time`. Batches come in
    /// order.
    pub(crate) fn add_batch(&mut self, offset: u64, position: u64, time: i64) {
        self.places.add(offset, position, time);
    }

    /// The message at `offset` has this id. Offsets come in order; an id that was there before keeps its first offset.
    pub(crate) fn add_id(&mut self, id: MessageId, offset: u64) {
        match offset.checked_sub(self.base_offset).and_then(|delta| u32::try_from(delta).ok()) {
            Some(delta) => self.ids.push(Id { id, delta }),
            None => self.too_far = Some(offset),
        }
    }

    /// A producer's messages. What goes on where the range before ended becomes one with it.
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

    /// The latest time at which the log took a batch of the segment; `None` if it has no batches.
    pub(crate) fn latest_time(&self) -> Option<i64> {
        (!self.places.places.is_empty()).then_some(self.places.latest_time)
    }

    /// Every id with its offset.
    pub(crate) fn for_each_id(&self, mut each: impl FnMut(MessageId, u64)) {
        self.ids.iter().for_each(|entry| each(entry.id, self.base_offset + u64::from(entry.delta)));
    }

    /// Where to begin reading for `offset`: at or before its batch. `None` while there is no batch.
    pub(crate) fn position_for(&self, offset: u64) -> Option<Place> {
        self.places.for_offset(offset)
    }

    /// Where to begin reading for the first batch that was taken at or after `time`. `None` if there is none.
    pub(crate) fn position_at_time(&self, time: i64) -> Option<Place> {
        self.places.at_time(time)
    }

    /// The offset of the producer's message with this sequence, if it is in this segment, up to behind the last that
    /// follows it without a gap.
    pub(crate) fn offsets_from(&self, producer: ProducerId, sequence: u64) -> Option<Range<u64>> {
        let (_, range) = self.ranges.range((producer, 0)..=(producer, sequence)).next_back()?;
        range.offsets_from(sequence)
    }

    /// Writes the index of the segment, which is final now, durably. After an error it may be tried again.
    ///
    /// `producers` is what the partition knows of its producers at the segment's end.
    pub(crate) fn finish(
        &mut self,
        disk: &Arc<dyn Disk>,
        directory: &Path,
        segment: Described,
        producers: &[ProducerState],
    ) -> Result<IndexFile> {
        if let Some(offset) = self.too_far {
            let sentence = format!("offset {offset} does not fit into a segment that begins with {}", self.base_offset);
            return Err(Error::new(ErrorKind::Internal, sentence));
        }
        // Ids that are made in order of time are nearly sorted already, which a stable sort makes use of, and of two
        // that are equal it leaves the first in front.
        self.ids.sort_by_key(|entry| number(entry.id));
        self.ids.dedup_by_key(|entry| entry.id);
        let ranges: Vec<_> = self.ranges.values().copied().collect();
        let mut producers = producers.to_vec();
        producers.sort_unstable_by_key(|state| state.producer);
        let content = Content { places: &self.places, ids: &self.ids, ranges: &ranges, producers: &producers };
        IndexFile::write(disk, directory, self.base_offset, segment, content)
    }
}
