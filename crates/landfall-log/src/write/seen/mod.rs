//! The ids of all messages in a topic, so that one that comes again is answered with the place where it stands.
//!
//! ```text
//! id ─▶ recent: a map, for the unfinished segments
//!   └─▶ filter: one column for each finished segment ─▶ its index file, which knows for certain
//! ```
//!
//! Invariants: an id is found as long as the segment with its message is there, and no longer; the filter only saves
//! the look into an index file that holds nothing. Memory: what the unfinished segments hold, and at most 24 bits
//! for each id that a finished segment has room for.

mod filter;
mod mix;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use landfall_core::{MessageId, Position, Result};

use crate::storage::index::IndexFile;
use filter::{Column, Filter};
use mix::Mix;

/// The ids of one topic, over all partitions.
#[derive(Debug)]
pub(crate) struct Seen {
    mix: Mix,
    /// Of the segments that are not finished, by the id as a number.
    recent: HashMap<u128, Position, Mix>,
    filter: Filter<Finished>,
    /// By partition and first offset.
    columns: BTreeMap<(u32, u64), Column>,
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
            recent: HashMap::with_hasher(mix),
            filter: Filter::new(),
            columns: BTreeMap::new(),
            finished_ids: 0,
            index_bytes: 0,
        }
    }

    /// Where the message with this id stands.
    #[cfg(test)]
    pub(crate) fn find(&self, id: MessageId) -> Result<Option<Position>> {
        let number = number(id);
        match self.recent.get(&number) {
            Some(position) => Ok(Some(*position)),
            None => find_finished(&self.filter, id, self.mix.hash(number)),
        }
    }

    /// Where the message with this id stands; if it does not yet, it stands at `position` from now on, in an unfinished
    /// segment. Mostly answered from memory; an error if an index file that has to be asked cannot be read or is damaged.
    pub(crate) fn find_or_insert(&mut self, id: MessageId, position: Position) -> Result<Option<Position>> {
        let number = number(id);
        match self.recent.entry(number) {
            Entry::Occupied(entry) => Ok(Some(*entry.get())),
            Entry::Vacant(entry) => {
                let found = find_finished(&self.filter, id, self.mix.hash(number))?;
                if found.is_none() {
                    entry.insert(position);
                }
                Ok(found)
            }
        }
    }

    /// The message with this id stands at `position`, in an unfinished segment.
    pub(crate) fn insert(&mut self, id: MessageId, position: Position) {
        self.recent.insert(number(id), position);
    }

    /// Takes back that an id was inserted: the message was not written after all.
    pub(crate) fn remove(&mut self, id: MessageId) {
        self.recent.remove(&number(id));
    }

    /// The segment of `index` was finished: its ids need no place in the map any more. After an error nothing has
    /// changed.
    pub(crate) fn seal(&mut self, partition: u32, base_offset: u64, index: Arc<IndexFile>) -> Result<()> {
        for (number, offset) in self.add_column(partition, base_offset, index)? {
            // The same id may stand somewhere else too, from before ids were looked at in this topic.
            if let Entry::Occupied(entry) = self.recent.entry(number)
                && *entry.get() == (Position { partition, offset })
            {
                entry.remove();
            }
        }
        Ok(())
    }

    /// A finished segment that was found when the log was opened, or whose index was made again.
    pub(crate) fn add_sealed(&mut self, partition: u32, base_offset: u64, index: Arc<IndexFile>) -> Result<()> {
        self.add_column(partition, base_offset, index).map(drop)
    }

    /// The segment was deleted, and with it what it held. Nothing happens if it is not known.
    pub(crate) fn forget(&mut self, partition: u32, base_offset: u64) {
        if let Some(column) = self.columns.remove(&(partition, base_offset)) {
            self.release(column);
        }
    }

    /// How many ids there are.
    pub(crate) fn len(&self) -> usize {
        self.recent.len() + self.finished_ids
    }

    /// What all of it takes in memory, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        // The map keeps a byte beside each entry.
        let recent = self.recent.capacity() * (size_of::<(u128, Position)>() + 1);
        recent + self.filter.memory_bytes() + self.index_bytes
    }

    /// Gives the segment a column, in place of one that it has, and returns its ids with their offsets.
    fn add_column(&mut self, partition: u32, base_offset: u64, index: Arc<IndexFile>) -> Result<Vec<(u128, u64)>> {
        let mut ids = Vec::with_capacity(index.id_count() as usize);
        index.for_each_id(|id, offset| ids.push((number(id), offset)))?;
        self.finished_ids += ids.len();
        self.index_bytes += index.memory_bytes();
        let hashes = ids.iter().map(|(number, _)| self.mix.hash(*number));
        let column = self.filter.add(Finished { partition, index }, hashes);
        if let Some(replaced) = self.columns.insert((partition, base_offset), column) {
            self.release(replaced);
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
