//! Counting what happened lately, in buckets of time that expire.

use std::time::{Duration, Instant};

/// How many buckets a window is cut into: what leaves it leaves it in steps of a tenth.
pub(crate) const BUCKETS: u32 = 10;

/// How often each of `N` things happened within the last so many buckets, the present one included. Things that are
/// compared with each other are counted in one window, so that they leave it together.
///
/// Time that runs backwards (instants taken on several threads) counts for the newest bucket.
#[derive(Debug, Clone)]
pub(crate) struct SlidingWindow<const N: usize> {
    bucket: Duration,
    /// When the first bucket began: the first time anything was asked.
    origin: Option<Instant>,
    /// The number of the newest bucket, counted from the origin.
    newest: u128,
    /// Counts of bucket `n` stand at `n % length`.
    counts: Vec<[u64; N]>,
    sum: [u64; N],
}

impl<const N: usize> SlidingWindow<N> {
    /// `length` is cut into [`BUCKETS`], of which the last `kept` count.
    pub(crate) fn new(length: Duration, kept: u32) -> Self {
        let bucket = (length / BUCKETS).max(Duration::from_nanos(1));
        Self { bucket, origin: None, newest: 0, counts: vec![[0; N]; kept.max(1) as usize], sum: [0; N] }
    }

    /// Counts what happened now, one number for each thing, and returns the sums.
    pub(crate) fn add(&mut self, now: Instant, happened: [u64; N]) -> [u64; N] {
        self.forget(now);
        let place = self.place(self.newest);
        for (thing, times) in happened.into_iter().enumerate() {
            self.counts[place][thing] += times;
            self.sum[thing] += times;
        }
        self.sum
    }

    pub(crate) fn count(&mut self, now: Instant) -> [u64; N] {
        self.forget(now);
        self.sum
    }

    pub(crate) fn clear(&mut self) {
        self.counts.fill([0; N]);
        self.sum = [0; N];
    }

    /// Empties the buckets that time has passed since the last look.
    fn forget(&mut self, now: Instant) {
        let origin = *self.origin.get_or_insert(now);
        let present = now.saturating_duration_since(origin).as_nanos() / self.bucket.as_nanos();
        let passed = present.saturating_sub(self.newest).min(self.counts.len() as u128);
        for step in 0..passed {
            let place = self.place(present - step);
            let passed = std::mem::replace(&mut self.counts[place], [0; N]);
            for (sum, times) in self.sum.iter_mut().zip(passed) {
                *sum -= times;
            }
        }
        self.newest = self.newest.max(present);
    }

    fn place(&self, bucket: u128) -> usize {
        (bucket % self.counts.len() as u128) as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a list of everything that ever happened.
        #[test]
        fn counts_what_a_list_of_all_events_would(
            steps in prop::collection::vec((0..400_u64, any::<bool>()), 0..200),
            kept in 1..=11_u32,
        ) {
            let start = Instant::now();
            let mut window = SlidingWindow::new(Duration::from_secs(1), kept);
            let (mut passed, mut events) = (0, Vec::new());
            // So that the origin is the start.
            window.count(start);
            for (millis, happens) in steps {
                passed += millis;
                let now = start + Duration::from_millis(passed);
                if happens {
                    window.add(now, [1]);
                    events.push(passed / 100);
                }
                let recent = events.iter().filter(|bucket| **bucket + u64::from(kept) > passed / 100).count();
                prop_assert_eq!(window.count(now), [recent as u64]);
            }
        }
    }

    #[test]
    fn an_instant_from_before_counts_for_the_newest_bucket() {
        let start = Instant::now();
        let mut window = SlidingWindow::new(Duration::from_secs(1), 2);
        window.add(start + Duration::from_secs(5), [1]);
        window.add(start, [1]);
        assert_eq!(window.count(start + Duration::from_secs(5)), [2]);
        assert_eq!(window.count(start + Duration::from_secs(6)), [0]);
    }
}
