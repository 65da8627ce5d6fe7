//! The ids of the unfinished segments.
//!
//! Ids that are made in the order of time mostly come in that order, too. One that is higher than every one before is
//! new, and goes to the end of a list; what comes later than it should has a place in a map. To put an id into a map of
//! this size is a walk to memory that no cache holds, and so is to take it out again.

use std::collections::HashMap;
use std::ops::Range;

use landfall_core::Position;

use super::mix::Mix;

#[derive(Debug)]
pub(super) struct Recent {
    /// Each higher than the one before.
    ascending: Vec<(u128, Position)>,
    /// Those that were not higher than every one before when they came. None of them is in the list.
    others: HashMap<u128, Position, Mix>,
    /// None of both is higher.
    highest: Option<u128>,
}

impl Recent {
    pub(super) fn new(mix: Mix) -> Self {
        Self { ascending: Vec::new(), others: HashMap::with_hasher(mix), highest: None }
    }

    pub(super) fn find(&self, number: u128) -> Option<Position> {
        if self.is_highest(number) {
            return None;
        }
        match self.place(number) {
            Ok(index) => Some(self.ascending[index].1),
            Err(_) => self.others.get(&number).copied(),
        }
    }

    /// Notes where `number` stands, in place of what was noted of it before.
    pub(super) fn insert(&mut self, number: u128, position: Position) {
        if self.is_highest(number) {
            self.highest = Some(number);
            return self.ascending.push((number, position));
        }
        match self.place(number) {
            Ok(index) => self.ascending[index].1 = position,
            Err(_) => drop(self.others.insert(number, position)),
        }
    }

    pub(super) fn remove(&mut self, number: u128) {
        match self.place(number) {
            Ok(index) => drop(self.ascending.remove(index)),
            Err(_) => drop(self.others.remove(&number)),
        }
    }

    /// Takes out what stands in `partition` at these offsets; `ids` are all that may.
    pub(super) fn remove_all(&mut self, partition: u32, offsets: Range<u64>, ids: &[(u128, u64)]) {
        let stands_there = |position: &Position| position.partition == partition && offsets.contains(&position.offset);
        self.ascending.retain(|(_, position)| !stands_there(position));
        for (number, _) in if self.others.is_empty() { &[] } else { ids } {
            // The same id may stand somewhere else too, from before ids were looked at in this topic.
            if self.others.get(number).is_some_and(stands_there) {
                self.others.remove(number);
            }
        }
        // So that a single one that was very high does not send all the others to the map for ever.
        self.highest = self.ascending.last().map(|(last, _)| *last).max(self.others.keys().max().copied());
    }

    pub(super) fn len(&self) -> usize {
        self.ascending.len() + self.others.len()
    }

    /// What it takes in memory, about.
    pub(super) fn memory_bytes(&self) -> usize {
        // The map keeps a byte beside each entry.
        let entry = size_of::<(u128, Position)>();
        self.ascending.capacity() * entry + self.others.capacity() * (entry + 1)
    }

    fn is_highest(&self, number: u128) -> bool {
        self.highest.is_none_or(|highest| number > highest)
    }

    fn place(&self, number: u128) -> Result<usize, usize> {
        self.ascending.binary_search_by_key(&number, |(number, _)| *number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_id_that_is_very_high_sends_the_others_to_the_map_only_until_its_segment_is_finished() {
        let mut recent = Recent::new(Mix::new());
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
