//! A sparse index of batch positions by offset and time: one batch in every 32 KiB.

/// The minimum distance of two entries.
const DISTANCE_BYTES: u64 = 32 * 1024;

/// The position of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchPosition {
    /// The offset of its first record.
    pub(crate) offset: u64,
    /// The position in the segment's file.
    pub(crate) position: u64,
    /// The latest append time of all earlier batches in the segment; the smallest number for the first.
    ///
    /// The batch's own time would not work: clocks step back, and a batch between two entries may be later than both.
    pub(crate) latest_before: i64,
}

#[derive(Debug, Clone)]
pub(super) struct PositionIndex {
    /// In order. The first is the segment's first batch.
    pub(super) entries: Vec<BatchPosition>,
    /// The latest append time of all batches.
    pub(super) latest_time: i64,
}

impl PositionIndex {
    pub(super) fn new() -> Self {
        Self { entries: Vec::new(), latest_time: i64::MIN }
    }

    /// Adds a batch. Batches are added in the order of the segment.
    pub(super) fn add(&mut self, offset: u64, position: u64, time: i64) {
        let is_far = |last: &BatchPosition| position.saturating_sub(last.position) >= DISTANCE_BYTES;
        if self.entries.last().is_none_or(is_far) {
            self.entries.push(BatchPosition { offset, position, latest_before: self.latest_time });
        }
        self.latest_time = self.latest_time.max(time);
    }

    pub(super) fn for_offset(&self, offset: u64) -> Option<BatchPosition> {
        self.before(self.entries.partition_point(|entry| entry.offset <= offset))
    }

    pub(super) fn at_time(&self, time: i64) -> Option<BatchPosition> {
        if self.latest_time < time {
            return None;
        }
        self.before(self.entries.partition_point(|entry| entry.latest_before < time))
    }

    /// The entry before the one with this index, or the first.
    fn before(&self, index: usize) -> Option<BatchPosition> {
        self.entries.get(index.saturating_sub(1)).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Reading from a found position yields the same as reading from the start, whatever the clock did.
        #[test]
        fn reading_from_a_found_position_misses_nothing(
            batches in proptest::collection::vec((1..4_u64, 1..60_000_u64, 0..50_i64), 1..60),
            (wanted_offset, wanted_time) in (0..200_u64, 0..60_i64),
        ) {
            let (mut positions, mut all) = (PositionIndex::new(), Vec::new());
            let (mut offset, mut position) = (100, 64);
            for (count, bytes, time) in batches {
                positions.add(offset, position, time);
                all.push((offset, position, time));
                offset += count;
                position += bytes;
            }
            let holds = all.iter().rfind(|batch| batch.0 <= wanted_offset).unwrap_or(&all[0]);
            let found = positions.for_offset(wanted_offset).unwrap();
            prop_assert!(found.position <= holds.1 && holds.1 - found.position < DISTANCE_BYTES);

            let first = all.iter().find(|batch| batch.2 >= wanted_time);
            let found = positions.at_time(wanted_time);
            prop_assert_eq!(found.is_some(), first.is_some());
            if let (Some(found), Some(first)) = (found, first) {
                prop_assert!(found.position <= first.1 && first.1 - found.position < DISTANCE_BYTES);
            }
            prop_assert!(positions.entries.windows(2).all(|two| two[1].position - two[0].position >= DISTANCE_BYTES));
        }
    }

    #[test]
    fn segment_without_batches_has_no_positions() {
        assert_eq!(PositionIndex::new().for_offset(7), None);
        assert_eq!(PositionIndex::new().at_time(7), None);
        assert_eq!(PositionIndex::new().at_time(i64::MIN), None);
    }
}
