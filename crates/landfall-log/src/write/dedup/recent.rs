//! The ids of the unfinished segments.
//!
//! Time-ordered ids mostly arrive in that order. An id higher than all before is new and goes to the end of a list;
//! late ids go into a map. Inserting into or removing from a map of this size is a cache miss, which the list avoids.

use std::collections::HashMap;
use std::ops::Range;

use landfall_core::Position;

use super::hash::IdHashBuilder;

#[derive(Debug)]
pub(super) struct Recent {
    /// Strictly ascending.
    ascending: Vec<(u128, Position)>,
    /// Ids that were not the highest when they arrived. None of them is in the list.
    others: HashMap<u128, Position, IdHashBuilder>,
    /// Upper bound of both.
    highest: Option<u128>,
}

impl Recent {
    pub(super) fn new(hasher: IdHashBuilder) -> Self {
        Self { ascending: Vec::new(), others: HashMap::with_hasher(hasher), highest: None }
    }

    pub(super) fn find(&self, number: u128) -> Option<Position> {
        if self.is_highest(number) {
            return None;
        }
        match self.search(number) {
            Ok(index) => Some(self.ascending[index].1),
            Err(_) => self.others.get(&number).copied(),
        }
    }

    /// Records the position of `number`, replacing an earlier one.
    pub(super) fn insert(&mut self, number: u128, position: Position) {
        if self.is_highest(number) {
            self.highest = Some(number);
            return self.ascending.push((number, position));
        }
        match self.search(number) {
            Ok(index) => self.ascending[index].1 = position,
            Err(_) => drop(self.others.insert(number, position)),
        }
    }

    pub(super) fn remove(&mut self, number: u128) {
        match self.search(number) {
            Ok(index) => drop(self.ascending.remove(index)),
            Err(_) => drop(self.others.remove(&number)),
        }
    }

    /// Removes the ids whose position is in `partition` at these offsets; `ids` is a superset of them.
    pub(super) fn remove_all(&mut self, partition: u32, offsets: Range<u64>, ids: &[(u128, u64)]) {
        let is_there = |position: &Position| position.partition == partition && offsets.contains(&position.offset);
        self.ascending.retain(|(_, position)| !is_there(position));
        for (number, _) in if self.others.is_empty() { &[] } else { ids } {
            // The same id may be stored at another position too, from before deduplication was turned on.
            if self.others.get(number).is_some_and(is_there) {
                self.others.remove(number);
            }
        }
        // Recomputed, so that one very high id does not send all later ids to the map forever.
        self.highest = self.ascending.last().map(|(last, _)| *last).max(self.others.keys().max().copied());
    }

    pub(super) fn len(&self) -> usize {
        self.ascending.len() + self.others.len()
    }

    /// Memory use, approximately.
    pub(super) fn memory_bytes(&self) -> usize {
        // The map keeps one byte of metadata per entry.
        let entry = size_of::<(u128, Position)>();
        self.ascending.capacity() * entry + self.others.capacity() * (entry + 1)
    }

    fn is_highest(&self, number: u128) -> bool {
        self.highest.is_none_or(|highest| number > highest)
    }

    fn search(&self, number: u128) -> Result<usize, usize> {
        self.ascending.binary_search_by_key(&number, |(number, _)| *number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outlier_id_sends_others_to_the_map_only_until_its_segment_is_finished() {
        let mut recent = Recent::new(IdHashBuilder::new());
        let at = |offset| Position { partition: 0, offset };
        let ids = [(u128::MAX, 0), (5, 1), (6, 2)];
        ids.iter().for_each(|(number, offset)| recent.insert(*number, at(*offset)));
        assert_eq!((recent.ascending.len(), recent.others.len()), (1, 2));
        recent.insert(7, at(3));
        recent.remove_all(0, 0..3, &ids);
        assert_eq!(ids.map(|(number, _)| recent.find(number)), [None; 3]);
        recent.insert(8, at(4));
        assert_eq!((recent.ascending.len(), recent.others.len()), (1, 1));
        assert_eq!((recent.find(7), recent.find(8)), (Some(at(3)), Some(at(4))));
    }
}
