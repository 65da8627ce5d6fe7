//! A Bloom filter for each of many segments, laid out so that one look at memory asks 64 of them.
//!
//! A segment is a *column*: one bit in each word of a group. An id sets its column's bit in eight words; the words are
//! the same for every column, so the eight words of an id, combined with AND, leave the columns that may hold it.
//!
//! ```text
//!             column 0 1 2 3 …          63
//! word 0             . . 1 . . . . . . .
//! word 1             1 . 1 . . . 1 . . .   ◀─ an id's words: column 2 may hold it,
//! word 2             . 1 . . 1 . . . . .      column 0 and 6 cannot
//! word 3             . . 1 . . 1 . . . .   ◀─
//! ```
//!
//! With 24 words for each id that a column is made for and eight bits set by each, a column that does not hold an id
//! seems to in 0.004 % of all cases; among the 153 columns of ten million ids one does in 0.6 %.
//!
//! Groups come in three sizes, because a segment of few large messages has few ids.

/// For how many ids a column may be made. More than the last one fit too, and are mistaken for others more often.
const CAPACITIES: [usize; 3] = [1024, 8192, 65_536];
const WORDS_PER_ID: usize = 24;
const COLUMNS: usize = u64::BITS as usize;
const PROBES: usize = 8;

/// Where a segment is in the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Column {
    group: usize,
    bit: usize,
}

#[derive(Debug)]
pub(super) struct Filter<T> {
    groups: Vec<Group<T>>,
}

#[derive(Debug)]
struct Group<T> {
    capacity: usize,
    /// Empty as long as no column is used.
    words: Vec<u64>,
    /// What each column stands for.
    owners: [Option<T>; COLUMNS],
}

impl<T> Filter<T> {
    pub(super) fn new() -> Self {
        Self { groups: Vec::new() }
    }

    /// Takes a free column for about `count` ids of `owner`.
    pub(super) fn add(&mut self, owner: T, count: usize) -> Column {
        let capacity = CAPACITIES.into_iter().find(|capacity| count <= *capacity);
        let capacity = capacity.unwrap_or(CAPACITIES[CAPACITIES.len() - 1]);
        let free = self.groups.iter().enumerate().find_map(|(group, found)| {
            let bit = if found.capacity == capacity { found.free_column() } else { None };
            bit.map(|bit| Column { group, bit })
        });
        let column = free.unwrap_or_else(|| {
            self.groups.push(Group { capacity, words: Vec::new(), owners: [const { None }; COLUMNS] });
            Column { group: self.groups.len() - 1, bit: 0 }
        });
        let group = &mut self.groups[column.group];
        if group.words.is_empty() {
            group.words = vec![0; capacity * WORDS_PER_ID];
        }
        group.owners[column.bit] = Some(owner);
        column
    }

    /// Notes an id, by its hash, in a column.
    pub(super) fn insert(&mut self, column: Column, hash: u64) {
        let words = &mut self.groups[column.group].words;
        for word in words_of(hash, words.len()) {
            words[word] |= 1 << column.bit;
        }
    }

    /// Makes a column free again and returns what it stood for.
    pub(super) fn remove(&mut self, column: Column) -> Option<T> {
        let group = &mut self.groups[column.group];
        let owner = group.owners[column.bit].take();
        if group.owners.iter().all(Option::is_none) {
            group.words = Vec::new();
        } else {
            group.words.iter_mut().for_each(|word| *word &= !(1 << column.bit));
        }
        owner
    }

    /// Who may hold the id with this hash: everybody who does, and rarely somebody who does not.
    pub(super) fn candidates(&self, hash: u64) -> impl Iterator<Item = &T> {
        self.groups.iter().flat_map(move |group| group.candidates(hash))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.groups.iter().map(|group| size_of_val(group) + size_of_val(&*group.words)).sum()
    }
}

impl<T> Group<T> {
    fn free_column(&self) -> Option<usize> {
        self.owners.iter().position(Option::is_none)
    }

    fn candidates(&self, hash: u64) -> impl Iterator<Item = &T> {
        let mut left = self.columns(hash);
        std::iter::from_fn(move || {
            let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(self.owners[bit].as_ref())
        })
        .flatten()
    }

    /// The columns that have all bits of `hash` set.
    fn columns(&self, hash: u64) -> u64 {
        if self.words.is_empty() {
            return 0;
        }
        let words = words_of(hash, self.words.len());
        let all = |words: &[usize]| words.iter().fold(u64::MAX, |columns, word| columns & self.words[*word]);
        // Half of the words mostly tell, and those are fetched from memory at the same time.
        let (first, second) = words.split_at(PROBES / 2);
        match all(first) {
            0 => 0,
            columns => columns & all(second),
        }
    }
}

/// The words of an id, out of `length`: the first half of its hash says where to begin, a number that depends on all
/// of it how far to go each time.
fn words_of(hash: u64, length: usize) -> [usize; PROBES] {
    let step = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32) | 1;
    std::array::from_fn(|probe| {
        let place = hash.wrapping_add(step.wrapping_mul(probe as u64));
        // As a fraction of all numbers, times the length: cheaper than a remainder, and no less even.
        ((u128::from(place) * length as u128) >> 64) as usize
    })
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, RandomState};

    use super::*;

    fn has(filter: &Filter<usize>, hash: u64, owner: usize) -> bool {
        filter.candidates(hash).any(|found| *found == owner)
    }

    #[test]
    fn what_was_noted_is_always_found_and_a_removed_column_is_empty() {
        let (mut filter, hashing) = (Filter::new(), RandomState::new());
        let ids = |owner: usize| (0..200_usize).map(move |index| (owner, index));
        // More columns than a group has, in two sizes.
        let columns: Vec<_> = (0..150).map(|owner| filter.add(owner, owner * 10)).collect();
        for (owner, column) in columns.iter().enumerate() {
            ids(owner).for_each(|id| filter.insert(*column, hashing.hash_one(id)));
        }
        let all_found = |filter: &Filter<usize>, owner| ids(owner).all(|id| has(filter, hashing.hash_one(id), owner));
        assert!((0..150).all(|owner| all_found(&filter, owner)));
        assert_eq!(filter.groups.len(), 3);

        assert_eq!(filter.remove(columns[7]), Some(7));
        assert_eq!(filter.remove(columns[7]), None);
        assert!(ids(7).all(|id| !has(&filter, hashing.hash_one(id), 7)));
        // The next one that fits takes its place and begins empty.
        let again = filter.add(1007, 70);
        assert_eq!(again, columns[7]);
        assert!(ids(7).all(|id| !has(&filter, hashing.hash_one(id), 1007)));
        assert!((0..150).filter(|owner| *owner != 7).all(|owner| all_found(&filter, owner)));
    }

    #[test]
    fn a_group_without_columns_takes_no_memory() {
        let mut filter = Filter::new();
        let columns: Vec<_> = (0..3).map(|owner| filter.add(owner, 1024)).collect();
        let before = filter.memory_bytes();
        assert!(before > 1024 * WORDS_PER_ID * 8);
        columns.into_iter().for_each(|column| {
            filter.insert(column, 7);
            filter.remove(column);
        });
        assert!(filter.memory_bytes() < 4096);
        assert_eq!(filter.candidates(7).count(), 0);
        let column = filter.add(9, 1024);
        assert_eq!(filter.memory_bytes(), before);
        assert_eq!(filter.candidates(7).count(), 0);
        filter.insert(column, 7);
        assert_eq!(filter.candidates(7).collect::<Vec<_>>(), [&9]);
    }

    /// The rate depends on how full a column is and not on how large it was made.
    #[test]
    fn a_full_group_is_wrong_about_few_ids() {
        let (mut filter, hashing) = (Filter::new(), RandomState::new());
        for owner in 0..COLUMNS {
            let column = filter.add(owner, CAPACITIES[0]);
            (0..CAPACITIES[0]).for_each(|id| filter.insert(column, hashing.hash_one((owner, id))));
        }
        let strangers = 0..100_000_usize;
        let wrong: usize =
            strangers.clone().map(|id| filter.candidates(hashing.hash_one((usize::MAX, id))).count()).sum();
        // 64 columns with a chance of 0.0041 % each are 0.26 %; half as many again would be far outside of chance.
        let rate = wrong as f64 / strangers.len() as f64;
        assert!((0.0015..0.0039).contains(&rate), "{rate}");
    }

    #[test]
    fn any_hash_has_words_inside_the_group() {
        for hash in [0, 1, u64::MAX, 1 << 63, 0x9e37_79b9_7f4a_7c15] {
            for length in CAPACITIES.map(|capacity| capacity * WORDS_PER_ID) {
                assert!(words_of(hash, length).iter().all(|word| *word < length));
            }
        }
    }
}
