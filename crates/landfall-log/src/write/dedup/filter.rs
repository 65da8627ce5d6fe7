//! Bloom filters for many segments, laid out so that one memory access tests hundreds of them.
//!
//! Each segment is a *column*: one bit in each row of a grid. An id sets its column's bit in twelve rows. The rows are
//! the same for every column, so ANDing the rows of an id leaves the columns that may hold it.
//!
//! ```text
//!             column 0 1 2 3 …          63
//! row 0              . . 1 . . . . . . .
//! row 1              1 . 1 . . . 1 . . .   ◀─ an id's rows: column 2 may hold it,
//! row 2              . 1 . . 1 . . . . .      columns 0 and 6 cannot
//! row 3              . . 1 . . 1 . . . .   ◀─
//! ```
//!
//! With 24 rows per id of a column's capacity and twelve bits per id, the false-positive rate of a column is 0.0014 %.
//! Among the 153 columns of ten million ids it is 0.2 %.
//!
//! Grids come in three heights, because a segment of few large messages has few ids. A grid starts with rows of 64
//! columns. When all are used, its rows grow by 64, up to the 512 that a cache line holds; then another grid is added.

/// The capacities of a column, in ids. A column above the largest works too, with a higher false-positive rate.
const CAPACITIES: [usize; 3] = [1024, 8192, 65_536];
const ROWS_PER_ID: usize = 24;
const PROBES: usize = 12;
/// Rows that are fetched from memory together before testing whether a column is left.
const PROBES_AT_ONCE: usize = 4;
const WORD_BITS: usize = u64::BITS as usize;
/// The maximum width of a row, in words.
const WIDTH_LIMIT: usize = 8;

/// The place of a segment in the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Column {
    grid: usize,
    number: usize,
}

#[derive(Debug)]
pub(super) struct Filter<T> {
    grids: Vec<Grid<T>>,
}

#[derive(Debug)]
struct Grid<T> {
    rows: usize,
    /// Words in a row; 0 while no column is used.
    width: usize,
    /// The rows, concatenated.
    words: Vec<u64>,
    /// The owner of each column.
    owners: Vec<Option<T>>,
}

impl<T> Filter<T> {
    pub(super) fn new() -> Self {
        Self { grids: Vec::new() }
    }

    /// Gives `owner` a column that holds the ids with these hashes.
    pub(super) fn add(&mut self, owner: T, hashes: impl ExactSizeIterator<Item = u64>) -> Column {
        let fits = |capacity: &usize| hashes.len() <= *capacity;
        let capacity = CAPACITIES.into_iter().find(fits).unwrap_or(CAPACITIES[CAPACITIES.len() - 1]);
        let rows = capacity * ROWS_PER_ID;
        let free = self.grids.iter().position(|grid| grid.rows == rows && grid.has_room());
        let grid = free.unwrap_or_else(|| {
            self.grids.push(Grid { rows, width: 0, words: Vec::new(), owners: Vec::new() });
            self.grids.len() - 1
        });
        let number = self.grids[grid].add(owner, hashes);
        Column { grid, number }
    }

    /// Frees a column and returns its owner.
    pub(super) fn remove(&mut self, column: Column) -> Option<T> {
        self.grids[column.grid].remove(column.number)
    }

    /// Returns the owners that may hold the id with this hash: all that do, and rarely one that does not.
    pub(super) fn candidates(&self, hash: u64) -> impl Iterator<Item = &T> {
        self.grids.iter().flat_map(move |grid| grid.candidates(hash))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let bytes = |grid: &Grid<T>| size_of_val(&*grid.words) + size_of_val(&*grid.owners) + size_of::<Grid<T>>();
        self.grids.iter().map(bytes).sum()
    }
}

impl<T> Grid<T> {
    fn has_room(&self) -> bool {
        self.width < WIDTH_LIMIT || self.owners.iter().any(Option::is_none)
    }

    /// Adds a column; the grid must have room for one.
    fn add(&mut self, owner: T, hashes: impl Iterator<Item = u64>) -> usize {
        let column = self.owners.iter().position(Option::is_none).unwrap_or_else(|| {
            self.widen();
            self.owners.len() - WORD_BITS
        });
        self.owners[column] = Some(owner);
        // Bits are collected first in a buffer that fits into the cache, then set in row order. The large memory is
        // traversed once instead of being accessed at random for each id.
        let mut marked = vec![0_u64; self.rows.div_ceil(WORD_BITS)];
        for hash in hashes {
            rows_of(hash, self.rows).into_iter().for_each(|row| marked[row / WORD_BITS] |= 1 << (row % WORD_BITS));
        }
        let (word, bit) = (column / WORD_BITS, column % WORD_BITS);
        for (index, marked) in marked.into_iter().enumerate() {
            for row in ones(marked) {
                self.words[(index * WORD_BITS + row) * self.width + word] |= 1 << bit;
            }
        }
        column
    }

    fn remove(&mut self, column: usize) -> Option<T> {
        let owner = self.owners.get_mut(column)?.take()?;
        if self.owners.iter().all(Option::is_none) {
            (self.width, self.words, self.owners) = (0, Vec::new(), Vec::new());
        } else {
            let (word, bit) = (column / WORD_BITS, column % WORD_BITS);
            self.words.iter_mut().skip(word).step_by(self.width).for_each(|word| *word &= !(1 << bit));
        }
        Some(owner)
    }

    /// Makes every row one word wider.
    fn widen(&mut self) {
        let width = self.width + 1;
        let mut words = vec![0; self.rows * width];
        if self.width > 0 {
            let rows = words.chunks_exact_mut(width).zip(self.words.chunks_exact(self.width));
            rows.for_each(|(row, before)| row[..before.len()].copy_from_slice(before));
        }
        (self.width, self.words) = (width, words);
        self.owners.resize_with(width * WORD_BITS, || None);
    }

    fn candidates(&self, hash: u64) -> impl Iterator<Item = &T> {
        let columns = self.columns(hash).into_iter().enumerate();
        columns.flat_map(move |(word, columns)| {
            ones(columns).filter_map(move |bit| self.owners[word * WORD_BITS + bit].as_ref())
        })
    }

    /// Returns the columns that have the bits of `hash` set in all its rows.
    fn columns(&self, hash: u64) -> [u64; WIDTH_LIMIT] {
        let mut columns = [0; WIDTH_LIMIT];
        let left = &mut columns[..self.width];
        left.fill(u64::MAX);
        let rows = rows_of(hash, self.rows);
        for rows in rows.chunks(PROBES_AT_ONCE) {
            for row in rows {
                let row = &self.words[row * self.width..(row + 1) * self.width];
                left.iter_mut().zip(row).for_each(|(left, word)| *left &= word);
            }
            if left.iter().all(|left| *left == 0) {
                break;
            }
        }
        columns
    }
}

/// Returns the indices of the bits that are set in `word`.
fn ones(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(bit)
    })
}

/// Returns the rows of an id, out of `count`. The hash gives the first row, and a second number derived from it the
/// step. The step grows, so that two ids that share one row diverge.
fn rows_of(hash: u64, count: usize) -> [usize; PROBES] {
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let (mut place, mut step) = (hash, hash.wrapping_mul(SPREAD).rotate_left(32));
    std::array::from_fn(|_| {
        // Scaled as a fraction of all numbers: cheaper than a remainder, and as even.
        let row = ((u128::from(place) * count as u128) >> 64) as usize;
        place = place.wrapping_add(step);
        step = step.wrapping_add(SPREAD);
        row
    })
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, RandomState};

    use super::*;

    /// Returns hashes of `count` ids of `owner`.
    fn hashes(hashing: &RandomState, owner: usize, count: usize) -> impl ExactSizeIterator<Item = u64> {
        (0..count).map(move |index| hashing.hash_one((owner, index)))
    }

    fn holds_all(filter: &Filter<usize>, owner: usize, mut hashes: impl Iterator<Item = u64>) -> bool {
        hashes.all(|hash| filter.candidates(hash).any(|found| *found == owner))
    }

    #[test]
    fn added_ids_are_always_found_and_removed_columns_are_empty() {
        let (mut filter, hashing) = (Filter::new(), RandomState::new());
        // More columns than a word has bits, in two sizes.
        let count = |owner: usize| if owner.is_multiple_of(3) { 1100 } else { 90 };
        let add = |filter: &mut Filter<usize>, owner| filter.add(owner, hashes(&hashing, owner, count(owner)));
        let columns: Vec<_> = (0..200).map(|owner| add(&mut filter, owner)).collect();
        let is_there = |filter: &Filter<usize>, owner| holds_all(filter, owner, hashes(&hashing, owner, count(owner)));
        assert!((0..200).all(|owner| is_there(&filter, owner)));
        assert_eq!(
            filter.grids.iter().map(|grid| (grid.rows, grid.width)).collect::<Vec<_>>(),
            [(8192 * ROWS_PER_ID, 2), (1024 * ROWS_PER_ID, 3)]
        );

        assert_eq!(filter.remove(columns[100]), Some(100));
        assert_eq!(filter.remove(columns[100]), None);
        let mut gone = hashes(&hashing, 100, 90);
        assert!(gone.all(|hash| filter.candidates(hash).all(|found| *found != 100)));
        // The next column that fits reuses the slot and starts empty.
        assert_eq!(add(&mut filter, 1000), columns[100]);
        let mut gone = hashes(&hashing, 100, 90);
        assert_eq!(gone.by_ref().filter(|hash| filter.candidates(*hash).any(|found| *found == 1000)).count(), 0);
        assert!((0..200).filter(|owner| *owner != 100).chain([1000]).all(|owner| is_there(&filter, owner)));
    }

    #[test]
    fn full_grid_is_followed_by_another() {
        let (mut filter, hashing) = (Filter::new(), RandomState::new());
        let columns: Vec<_> = (0..600).map(|owner| filter.add(owner, hashes(&hashing, owner, 3))).collect();
        assert_eq!(filter.grids.iter().map(|grid| grid.width).collect::<Vec<_>>(), [WIDTH_LIMIT, 2]);
        assert!((0..600).all(|owner| holds_all(&filter, owner, hashes(&hashing, owner, 3))));
        columns[..512].iter().for_each(|column| assert!(filter.remove(*column).is_some()));
        assert!((512..600).all(|owner| holds_all(&filter, owner, hashes(&hashing, owner, 3))));
    }

    #[test]
    fn filter_without_columns_uses_no_memory() {
        let mut filter = Filter::new();
        assert_eq!(filter.candidates(7).count(), 0);
        let columns: Vec<_> = (0..3).map(|owner| filter.add(owner, [7].into_iter())).collect();
        let before = filter.memory_bytes();
        assert!(before > 1024 * ROWS_PER_ID * 8);
        columns.into_iter().for_each(|column| assert!(filter.remove(column).is_some()));
        assert!(filter.memory_bytes() < 200);
        assert_eq!(filter.candidates(7).count(), 0);
        filter.add(9, [7].into_iter());
        assert_eq!(filter.memory_bytes(), before);
        assert_eq!(filter.candidates(7).collect::<Vec<_>>(), [&9]);
    }

    /// The rate depends on the fill of a column and not on its capacity.
    #[test]
    fn full_columns_have_few_false_positives() {
        let (mut filter, hashing) = (Filter::new(), RandomState::new());
        for owner in 0..128 {
            filter.add(owner, hashes(&hashing, owner, CAPACITIES[0]));
        }
        let wrong: usize = hashes(&hashing, usize::MAX, 200_000).map(|hash| filter.candidates(hash).count()).sum();
        // 128 columns at 0.00138 % each give 353 of 200,000; the bounds are far outside of chance.
        assert!((230..480).contains(&wrong), "{wrong}");
    }

    #[test]
    fn every_hash_maps_to_rows_inside_the_grid() {
        for hash in [0, 1, u64::MAX, 1 << 63, 0x9e37_79b9_7f4a_7c15] {
            for rows in CAPACITIES.map(|capacity| capacity * ROWS_PER_ID) {
                assert!(rows_of(hash, rows).iter().all(|row| *row < rows));
            }
        }
    }
}
