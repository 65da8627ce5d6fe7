//! The offsets of one partition in flight.

use std::collections::VecDeque;

/// Removed entries are dropped from the middle when there are more of them than this, and than entries in flight.
const MAX_REMOVED: usize = 64;

/// The offsets in flight, each with the number of its arrival.
///
/// Offsets nearly always arrive in order and are finished near the front, so a sorted queue does both in constant time.
/// A tree would allocate and rebalance for each message. An entry that is removed from the middle stays until the
/// front reaches it, or until such entries outnumber the others: memory is bounded by the number in flight.
#[derive(Debug)]
pub(super) struct Offsets<O> {
    /// Sorted by offset. The first is in flight.
    entries: VecDeque<Entry<O>>,
    in_flight: usize,
    arrivals: usize,
}

#[derive(Debug, Clone, Copy)]
struct Entry<O> {
    offset: O,
    arrival: usize,
    is_in_flight: bool,
}

impl<O> Default for Offsets<O> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), in_flight: 0, arrivals: 0 }
    }
}

impl<O: Ord + Copy> Offsets<O> {
    /// Adds an offset; `false` if it is in flight already.
    pub(super) fn insert(&mut self, offset: O) -> bool {
        let entry = Entry { offset, arrival: self.arrivals, is_in_flight: true };
        match self.entries.back() {
            Some(last) if offset <= last.offset => match self.find(offset) {
                Ok(index) if self.entries[index].is_in_flight => return false,
                Ok(index) => self.entries[index] = entry,
                Err(index) => self.entries.insert(index, entry),
            },
            _ => self.entries.push_back(entry),
        }
        self.arrivals += 1;
        self.in_flight += 1;
        true
    }

    /// Removes an offset; `false` if it is not in flight.
    pub(super) fn remove(&mut self, offset: O) -> bool {
        let Some(entry) = self.find(offset).ok().and_then(|index| self.entries.get_mut(index)) else { return false };
        if !std::mem::take(&mut entry.is_in_flight) {
            return false;
        }
        self.in_flight -= 1;
        while self.entries.pop_front_if(|first| !first.is_in_flight).is_some() {}
        if self.entries.len() - self.in_flight > MAX_REMOVED.max(self.in_flight) {
            self.entries.retain(|entry| entry.is_in_flight);
        }
        true
    }

    pub(super) fn contains(&self, offset: O) -> bool {
        self.find(offset).is_ok_and(|index| self.entries[index].is_in_flight)
    }

    pub(super) fn len(&self) -> usize {
        self.in_flight
    }

    pub(super) fn first(&self) -> Option<O> {
        self.entries.front().map(|first| first.offset)
    }

    /// The offsets in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = O> {
        self.entries.iter().filter(|entry| entry.is_in_flight).map(|entry| entry.offset)
    }

    /// How many arrived since the first one in flight, that one included.
    pub(super) fn backlog(&self) -> usize {
        self.entries.front().map_or(0, |first| self.arrivals - first.arrival)
    }

    fn find(&self, offset: O) -> Result<usize, usize> {
        match self.entries.front() {
            Some(first) if first.offset == offset => Ok(0),
            _ => self.entries.binary_search_by_key(&offset, |entry| entry.offset),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_removed_behind_an_unfinished_one_do_not_accumulate() {
        let mut offsets = Offsets::default();
        for offset in 0..10_000 {
            assert!(offsets.insert(offset));
            assert!(offset == 0 || offsets.remove(offset));
        }
        assert!(offsets.entries.len() <= 2 + MAX_REMOVED, "{}", offsets.entries.len());
        assert_eq!((offsets.len(), offsets.first(), offsets.backlog()), (1, Some(0), 10_000));
        assert!(offsets.remove(0) && !offsets.remove(0));
        assert_eq!((offsets.len(), offsets.first(), offsets.backlog()), (0, None, 0));
    }

    #[test]
    fn an_offset_removed_from_the_middle_can_arrive_again() {
        let mut offsets = Offsets::default();
        assert!([1, 3, 2].into_iter().all(|offset| offsets.insert(offset)));
        assert!(!offsets.insert(2) && offsets.remove(2) && !offsets.contains(2));
        assert_eq!(offsets.iter().collect::<Vec<_>>(), [1, 3]);
        assert!(offsets.insert(2) && offsets.contains(2));
        assert_eq!((offsets.iter().collect::<Vec<_>>(), offsets.len()), (vec![1, 2, 3], 3));
    }
}
