//! Sliding-window counters.

use std::time::{Duration, Instant};

/// Buckets per window; counts expire in steps of a tenth.
pub(crate) const BUCKETS: u32 = 10;

/// Counts `N` kinds of events over the last buckets, including the current one. Counts that are compared with each
/// other share a window, so that they expire together.
///
/// An instant before the newest bucket (taken on another thread) counts for the newest bucket.
#[derive(Debug, Clone)]
pub(crate) struct SlidingWindow<const N: usize> {
    bucket: Duration,
    /// The start of the first bucket: the first use.
    origin: Option<Instant>,
    /// The number of the newest bucket, counted from the origin.
    newest: u128,
    /// The counts of bucket `n` are at index `n % length`.
    counts: Vec<[u64; N]>,
    sum: [u64; N],
}

impl<const N: usize> SlidingWindow<N> {
    /// Divides `length` into [`BUCKETS`], of which the last `kept` count.
    pub(crate) fn new(length: Duration, kept: u32) -> Self {
        let bucket = (length / BUCKETS).max(Duration::from_nanos(1));
        Self { bucket, origin: None, newest: 0, counts: vec![[0; N]; kept.max(1) as usize], sum: [0; N] }
    }

    /// Adds events, one number per kind, and returns the sums.
    pub(crate) fn add(&mut self, now: Instant, events: [u64; N]) -> [u64; N] {
        self.forget(now);
        let index = self.index(self.newest);
        for (kind, times) in events.into_iter().enumerate() {
            self.counts[index][kind] += times;
            self.sum[kind] += times;
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

    /// Clears the buckets that expired since the last call.
    fn forget(&mut self, now: Instant) {
        let origin = *self.origin.get_or_insert(now);
        let present = now.saturating_duration_since(origin).as_nanos() / self.bucket.as_nanos();
        let passed = present.saturating_sub(self.newest).min(self.counts.len() as u128);
        for step in 0..passed {
            let index = self.index(present - step);
            let expired = std::mem::replace(&mut self.counts[index], [0; N]);
            for (sum, times) in self.sum.iter_mut().zip(expired) {
                *sum -= times;
            }
        }
        self.newest = self.newest.max(present);
    }

    fn index(&self, bucket: u128) -> usize {
        (bucket % self.counts.len() as u128) as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares with a list of all events.
        #[test]
        fn window_counts_like_a_list_of_all_events(
            steps in prop::collection::vec((0..400_u64, any::<bool>()), 0..200),
            kept in 1..=11_u32,
        ) {
            let start = Instant::now();
            let mut window = SlidingWindow::new(Duration::from_secs(1), kept);
            let (mut passed, mut events) = (0, Vec::new());
            // Sets the origin to the start.
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
    fn earlier_instant_counts_for_the_newest_bucket() {
        let start = Instant::now();
        let mut window = SlidingWindow::new(Duration::from_secs(1), 2);
        window.add(start + Duration::from_secs(5), [1]);
        window.add(start, [1]);
        assert_eq!(window.count(start + Duration::from_secs(5)), [2]);
        assert_eq!(window.count(start + Duration::from_secs(6)), [0]);
    }
}
