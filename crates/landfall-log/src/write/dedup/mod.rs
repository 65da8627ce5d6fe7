//! The ids of all messages in a topic: a duplicate is answered with the position of the stored message.
//!
//! ```text
//! id ─▶ recent: a list and a map, for the unfinished segments
//!   └─▶ range: between the lowest and the highest id of all finished segments?
//!         └─▶ filter: one column for each of them ─▶ its index file, which is exact
//! ```
//!
//! Time-ordered ids, such as Landfall's own, are mostly higher than all finished ones. Then two comparisons suffice,
//! and the filter, which is far larger than any cache, is not accessed.
//!
//! Invariants: an id is found exactly as long as the segment with its message exists. The filter only avoids reads of
//! index files that do not hold the id. Memory: the ids of the unfinished segments, and at most 24 bits per id of a
//! finished segment's capacity.

mod filter;
mod hash;
mod recent;

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall_core::{MessageId, Position, Result};

use crate::storage::index::IndexFile;
use filter::{Column, Filter};
use hash::IdHashBuilder;
use recent::Recent;

/// The ids of one topic, across all partitions.
#[derive(Debug)]
pub(crate) struct DedupIndex {
    hasher: IdHashBuilder,
    /// Ids of unfinished segments, as numbers.
    recent: Recent,
    filter: Filter<FinishedSegment>,
    /// By partition and first offset.
    columns: BTreeMap<(u32, u64), SegmentIds>,
    range: IdRange,
    /// Number of ids in finished segments.
    finished_ids: usize,
    index_bytes: usize,
}

/// A finished segment with its index.
#[derive(Debug)]
struct FinishedSegment {
    partition: u32,
    index: Arc<IndexFile>,
}

/// The filter column and id range of a finished segment.
#[derive(Debug, Clone, Copy)]
struct SegmentIds {
    column: Column,
    range: IdRange,
}

/// The lowest and the highest of a set of ids, as numbers.
#[derive(Debug, Clone, Copy)]
struct IdRange {
    lowest: u128,
    highest: u128,
}

impl IdRange {
    /// The range of an empty set.
    const EMPTY: Self = Self { lowest: u128::MAX, highest: 0 };

    fn contains(&self, number: u128) -> bool {
        (self.lowest..=self.highest).contains(&number)
    }

    /// The union of both.
    fn union(self, other: Self) -> Self {
        Self { lowest: self.lowest.min(other.lowest), highest: self.highest.max(other.highest) }
    }
}

impl Default for DedupIndex {
    fn default() -> Self {
        Self::new()
    }
}

impl DedupIndex {
    pub(crate) fn new() -> Self {
        let hasher = IdHashBuilder::new();
        Self {
            hasher,
            recent: Recent::new(hasher),
            filter: Filter::new(),
            columns: BTreeMap::new(),
            range: IdRange::EMPTY,
            finished_ids: 0,
            index_bytes: 0,
        }
    }

    /// Returns the position of the message with this id.
    #[cfg(test)]
    pub(crate) fn find(&self, id: MessageId) -> Result<Option<Position>> {
        let number = number(id);
        match self.recent.find(number) {
            Some(position) => Ok(Some(position)),
            None if !self.range.contains(number) => Ok(None),
            None => find_finished(&self.filter, id, self.hasher.hash(number)),
        }
    }

    /// Returns the position of the message with this id. If the id is new, records it at `position`, in an unfinished
    /// segment. Mostly answered from memory. Fails if an index file cannot be read or is damaged.
    pub(crate) fn find_or_insert(&mut self, id: MessageId, position: Position) -> Result<Option<Position>> {
        let number = number(id);
        if let Some(position) = self.recent.find(number) {
            return Ok(Some(position));
        }
        let found = match self.range.contains(number) {
            true => find_finished(&self.filter, id, self.hasher.hash(number))?,
            false => None,
        };
        if found.is_none() {
            self.recent.insert(number, position);
        }
        Ok(found)
    }

    /// Records an id at `position`, in an unfinished segment.
    pub(crate) fn insert(&mut self, id: MessageId, position: Position) {
        self.recent.insert(number(id), position);
    }

    /// Removes an inserted id whose message was not written after all.
    pub(crate) fn remove(&mut self, id: MessageId) {
        self.recent.remove(number(id));
    }

    /// Moves the ids of a segment that was just finished from the recent ones to the filter. After an error nothing
    /// has changed.
    pub(crate) fn seal(&mut self, partition: u32, base_offset: u64, index: Arc<IndexFile>) -> Result<()> {
        let offsets = base_offset..index.end_offset();
        let ids = self.add_column(partition, base_offset, index)?;
        self.recent.remove_all(partition, offsets, &ids);
        Ok(())
    }

    /// Adds a finished segment that was found on opening, or whose index was rebuilt.
    pub(crate) fn add_sealed(&mut self, partition: u32, base_offset: u64, index: Arc<IndexFile>) -> Result<()> {
        self.add_column(partition, base_offset, index).map(drop)
    }

    /// Removes the ids of a deleted segment, if it is known.
    pub(crate) fn forget(&mut self, partition: u32, base_offset: u64) {
        if let Some(sealed) = self.columns.remove(&(partition, base_offset)) {
            self.release(sealed.column);
            self.range = self.columns.values().fold(IdRange::EMPTY, |range, sealed| range.union(sealed.range));
        }
    }

    /// The number of ids.
    pub(crate) fn len(&self) -> usize {
        self.recent.len() + self.finished_ids
    }

    /// Memory use, approximately.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.recent.memory_bytes() + self.filter.memory_bytes() + self.index_bytes
    }

    /// Gives the segment a column, replacing an existing one, and returns its ids with their offsets.
    fn add_column(&mut self, partition: u32, base_offset: u64, index: Arc<IndexFile>) -> Result<Vec<(u128, u64)>> {
        let mut ids = Vec::with_capacity(index.id_count() as usize);
        index.for_each_id(|id, offset| ids.push((number(id), offset)))?;
        self.finished_ids += ids.len();
        self.index_bytes += index.memory_bytes();
        let hashes = ids.iter().map(|(number, _)| self.hasher.hash(*number));
        let column = self.filter.add(FinishedSegment { partition, index }, hashes);
        let single = |(number, _): &(u128, u64)| IdRange { lowest: *number, highest: *number };
        let range = ids.iter().map(single).fold(IdRange::EMPTY, IdRange::union);
        // If a segment is replaced by a smaller one, the range may stay too wide, which only costs filter lookups.
        self.range = self.range.union(range);
        if let Some(replaced) = self.columns.insert((partition, base_offset), SegmentIds { column, range }) {
            self.release(replaced.column);
        }
        Ok(ids)
    }

    fn release(&mut self, column: Column) {
        if let Some(FinishedSegment { index, .. }) = self.filter.remove(column) {
            self.finished_ids -= index.id_count() as usize;
            self.index_bytes -= index.memory_bytes();
        }
    }
}

fn find_finished(filter: &Filter<FinishedSegment>, id: MessageId, hash: u64) -> Result<Option<Position>> {
    for FinishedSegment { partition, index } in filter.candidates(hash) {
        if let Some(offset) = index.find(id)? {
            return Ok(Some(Position { partition: *partition, offset }));
        }
    }
    Ok(None)
}

fn number(id: MessageId) -> u128 {
    u128::from_be_bytes(*id.as_bytes())
}

#[cfg(test)]
mod tests;
