//! Where to begin reading a segment for some offset or time: one of its batches in every 32 KiB.

/// How far apart two places are at least.
const DISTANCE_BYTES: u64 = 32 * 1024;

/// Where a batch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The offset of its first record.
    pub(crate) offset: u64,
    /// The byte of the segment's file.
    pub(crate) position: u64,
    /// The latest time of all batches before it in the segment; the smallest number for the first.
    ///
    /// The time of the batch itself would not do: clocks step back, and a batch that is passed over between two
    /// places may be later than both.
    pub(crate) latest_before: i64,
}

#[derive(Debug, Clone)]
pub(super) struct Places {
    /// In order. The first is the segment's first batch.
    pub(super) places: Vec<Place>,
    /// The latest time of all batches.
    pub(super) latest_time: i64,
}

impl Places {
    pub(super) fn new() -> Self {
        Self { places: Vec::new(), latest_time: i64::MIN }
    }

    /// Notes a batch. Batches come in the order in which they stand in the segment.
    pub(super) fn add(&mut self, offset: u64, position: u64, time: i64) {
        let is_far = |last: &Place| position.saturating_sub(last.position) >= DISTANCE_BYTES;
        if self.places.last().is_none_or(is_far) {
            self.places.push(Place { offset, position, latest_before: self.latest_time });
        }
        self.latest_time = self.latest_time.max(time);
    }

    pub(super) fn for_offset(&self, offset: u64) -> Option<Place> {
        self.before(self.places.partition_point(|place| place.offset <= offset))
    }

    pub(super) fn at_time(&self, time: i64) -> Option<Place> {
        if self.latest_time < time {
            return None;
        }
        self.before(self.places.partition_point(|place| place.latest_before < time))
    }

    /// The place in front of the one with this number, or the first.
    fn before(&self, index: usize) -> Option<Place> {
        self.places.get(index.saturating_sub(1)).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Reading on from a place finds what reading from the beginning would, whatever the clock did.
        #[test]
        fn reading_from_a_place_misses_nothing(
            batches in proptest::collection::vec((1..4_u64, 1..60_000_u64, 0..50_i64), 1..60),
            (wanted_offset, wanted_time) in (0..200_u64, 0..60_i64),
        ) {
            let (mut places, mut all) = (Places::new(), Vec::new());
            let (mut offset, mut position) = (100, 64);
            for (count, bytes, time) in batches {
                places.add(offset, position, time);
                all.push((offset, position, time));
                offset += count;
                position += bytes;
            }
            let holds = all.iter().rfind(|batch| batch.0 <= wanted_offset).unwrap_or(&all[0]);
            let found = places.for_offset(wanted_offset).unwrap();
            prop_assert!(found.position <= holds.1 && holds.1 - found.position < DISTANCE_BYTES);

            let first = all.iter().find(|batch| batch.2 >= wanted_time);
            let found = places.at_time(wanted_time);
            prop_assert_eq!(found.is_some(), first.is_some());
            if let (Some(found), Some(first)) = (found, first) {
                prop_assert!(found.position <= first.1 && first.1 - found.position < DISTANCE_BYTES);
            }
            prop_assert!(places.places.windows(2).all(|two| two[1].position - two[0].position >= DISTANCE_BYTES));
        }
    }

    #[test]
    fn a_segment_without_batches_has_no_places() {
        assert_eq!(Places::new().for_offset(7), None);
        assert_eq!(Places::new().at_time(7), None);
        assert_eq!(Places::new().at_time(i64::MIN), None);
    }
}
