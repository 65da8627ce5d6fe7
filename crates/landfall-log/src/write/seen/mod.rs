//! The ids of all messages in a topic, so that one that comes again is answered with the place where it stands.
//!
//! ```text
//! id ─▶ recent: a list and a map, for the unfinished segments
//!   └─▶ span: between the lowest and the highest id of all finished segments?
//!         └─▶ filter: one column for each of them ─▶ its index file, which knows for certain
//! ```
//!
//! Ids that are made in the order of time, as ours are, are mostly higher than all that are finished. Then two
//! numbers answer, and the filter, which is far larger than any cache, is not looked at.
//!
//! Invariants: an id is found as long as the segment with its message is there, and no longer; the filter only saves
//! the look into an index file that holds nothing. Memory: what the unfinished segments hold, and at most 24 bits
//! for each id that a finished segment has room for.

mod filter;
mod mix;
mod recent;

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall_core::{MessageId, Position, Result};

use crate::storage::index::IndexFile;
use filter::{Column, Filter};
use mix::Mix;
use recent::Recent;

/// The ids of one topic, over all partitions.
#[derive(Debug)]
pub(crate) struct Seen {
    mix: Mix,
    /// Of the segments that are not finished, by the id as a number.
    recent: Recent,
    filter: Filter<Finished>,
    /// By partition and first offset.
    columns: BTreeMap<(u32, u64), Sealed>,
    span: Span,
    /// How many ids the finished segments hold.
    finished_ids: usize,
    index_bytes: usize,
}

/// A segment that has its index.
#[derive(Debug)]
struct Finished {
    partition: u32,
    index: Arc<IndexFile>,
}

/// Where the ids of a finished segment are.
#[derive(Debug, Clone, Copy)]
struct Sealed {
    column: Column,
    span: Span,
}

/// The lowest and the highest of some ids, as numbers.
#[derive(Debug, Clone, Copy)]
struct Span {
    lowest: u128,
    highest: u128,
}

impl Span {
    /// That of no ids.
    const NONE: Self = Self { lowest: u128::MAX, highest: 0 };

    fn holds(&self, number: u128) -> bool {
        (self.lowest..=self.highest).contains(&number)
    }

    /// Of both together.
    fn and(self, other: Self) -> Self {
        Self { lowest: self.lowest.min(other.lowest), highest: self.highest.max(other.highest) }
    }
}

impl Default for Seen {
    fn default() -> Self {
        Self::new()
    }
}

impl Seen {
    pub(crate) fn new() -> Self {
        let mix = Mix::new();
        Self {
            mix,
            recent: Recent::new(mix),
            filter: Filter::new(),
            columns: BTreeMap::new(),
            span: Span::NONE,
            finished_ids: 0,
            index_bytes: 0,
        }
    }

    /// Where the message with this id stands.
    #[cfg(test)]
    pub(crate) fn find(&self, id: MessageId) -> Result<Option<Position>> {
        let number = number(id);
        match self.recent.find(number) {
            Some(position) => Ok(Some(position)),
            None if !self.span.holds(number) => Ok(None),
            None => find_finished(&self.filter, id, self.mix.hash(number)),
        }
    }

    /// Where the message with this id stands; if it does not yet, it stands at `position` from now on, in an unfinished
    /// segment. Mostly answered from memory; an error if an index file that has to be asked cannot be read or is damaged.
    pub(crate) fn find_or_insert(&mut self, id: MessageId, position: Position) -> Result<Option<Position>> {
        let number = number(id);
        if let Some(position) = self.recent.find(number) {
            return Ok(Some(position));
        }
        let found = match self.span.holds(number) {
            true => find_finished(&self.filter, id, self.mix.hash(number))?,
            false => None,
        };
        if found.is_none() {
            self.recent.insert(number, position);
        }
        Ok(found)
    }

    /// The message with this id stands at `position`, in an unfinished segment.
    pub(crate) fn insert(&mut self, id: MessageId, position: Position) {
        self.recent.insert(number(id), position);
    }

    /// Takes back that an id was inserted: the message was not written after all.
    pub(crate) fn remove(&mut self, id: MessageId) {
        self.recent.remove(number(id));
    }

    /// The segment of `index` was finished: its ids need no place among the recent ones any more. After an error nothing has
    /// changed.
    pub(crate) fn seal(&mut self, partition: u32, base_offset: u64, index: Arc<IndexFile>) -> Result<()> {
        let offsets = base_offset..index.end_offset();
        let ids = self.add_column(partition, base_offset, index)?;
        self.recent.remove_all(partition, offsets, &ids);
        Ok(())
    }

    /// A finished segment that was found when the log was opened, or whose index was made again.
    pub(crate) fn add_sealed(&mut self, partition: u32, base_offset: u64, index: Arc<IndexFile>) -> Result<()> {
        self.add_column(partition, base_offset, index).map(drop)
    }

    /// The segment was deleted, and with it what it held. Nothing happens if it is not known.
    pub(crate) fn forget(&mut self, partition: u32, base_offset: u64) {
        if let Some(sealed) = self.columns.remove(&(partition, base_offset)) {
            self.release(sealed.column);
            self.span = self.columns.values().fold(Span::NONE, |span, sealed| span.and(sealed.span));
        }
    }

    /// How many ids there are.
    pub(crate) fn len(&self) -> usize {
        self.recent.len() + self.finished_ids
    }

    /// What all of it takes in memory, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.recent.memory_bytes() + self.filter.memory_bytes() + self.index_bytes
    }

    /// Gives the segment a column, in place of one that it has, and returns its ids with their offsets.
    fn add_column(&mut self, partition: u32, base_offset: u64, index: Arc<IndexFile>) -> Result<Vec<(u128, u64)>> {
        let mut ids = Vec::with_capacity(index.id_count() as usize);
        index.for_each_id(|id, offset| ids.push((number(id), offset)))?;
        self.finished_ids += ids.len();
        self.index_bytes += index.memory_bytes();
        let hashes = ids.iter().map(|(number, _)| self.mix.hash(*number));
        let column = self.filter.add(Finished { partition, index }, hashes);
        let of = |(number, _): &(u128, u64)| Span { lowest: *number, highest: *number };
        let span = ids.iter().map(of).fold(Span::NONE, Span::and);
        // Of one that is replaced by less, the span may stay too wide, and then the filter is asked for nothing.
        self.span = self.span.and(span);
        if let Some(replaced) = self.columns.insert((partition, base_offset), Sealed { column, span }) {
            self.release(replaced.column);
        }
        Ok(ids)
    }

    fn release(&mut self, column: Column) {
        if let Some(Finished { index, .. }) = self.filter.remove(column) {
            self.finished_ids -= index.id_count() as usize;
            self.index_bytes -= index.memory_bytes();
        }
    }
}

fn find_finished(filter: &Filter<Finished>, id: MessageId, hash: u64) -> Result<Option<Position>> {
    for Finished { partition, index } in filter.candidates(hash) {
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
