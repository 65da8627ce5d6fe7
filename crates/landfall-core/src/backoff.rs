use std::time::Duration;

/// When to try again, and when to stop: doubles from `first` up to `cap`, at most `max_attempts` tries in all.
///
/// Pure: the caller brings the random number, so that tests can choose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    pub cap: Duration,
    pub max_attempts: u32,
}

impl Backoff {
    /// The delay after the `attempt`-th try (counted from 1) failed, or `None` if that was the last one allowed.
    ///
    /// `random` in `0.0..1.0` spreads the delay over its upper half: never less than half of it, so that a failing
    /// dependency is left alone for a while, and not all at the same moment.
    pub fn delay_after(&self, attempt: u32, random: f64) -> Option<Duration> {
        if attempt >= self.max_attempts {
            return None;
        }
        let doublings = attempt.saturating_sub(1).min(31);
        let full = self.first.saturating_mul(1 << doublings).min(self.cap);
        Some(full.mul_f64(0.5 + 0.5 * random.clamp(0.0, 1.0)))
    }

    /// The longest that all delays together can be: from the first failure to the last one.
    pub fn longest(&self) -> Duration {
        let delays = self.max_attempts.saturating_sub(1);
        let (mut sum, mut delay) = (Duration::ZERO, self.first);
        for done in 0..delays {
            if delay >= self.cap || delay.is_zero() || done > 31 {
                // From here on every delay is the same.
                return sum.saturating_add(delay.min(self.cap).saturating_mul(delays - done));
            }
            sum = sum.saturating_add(delay);
            // As far as the doubling goes.
            if done < 31 {
                delay = delay.saturating_mul(2);
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BACKOFF: Backoff =
        Backoff { first: Duration::from_millis(100), cap: Duration::from_secs(5), max_attempts: 10 };

    #[test]
    fn doubles_up_to_the_cap_and_ends() {
        let full: Vec<_> = (1..=10).map(|attempt| BACKOFF.delay_after(attempt, 1.0)).collect();
        let millis = |n| Some(Duration::from_millis(n));
        assert_eq!(full[..3], [millis(100), millis(200), millis(400)]);
        assert_eq!(full[6..], [millis(5000), millis(5000), millis(5000), None]);
    }

    proptest! {
        #[test]
        fn stays_within_its_bounds(attempt in 1u32.., random in 0.0..1.0) {
            if let Some(delay) = BACKOFF.delay_after(attempt, random) {
                prop_assert!(delay >= BACKOFF.first / 2 && delay <= BACKOFF.cap);
                prop_assert!(attempt < BACKOFF.max_attempts);
            }
        }

        #[test]
        fn the_longest_is_the_sum_of_all_delays(first in 0..10_000_u64, cap in 0..1_000_000_u64, max_attempts in 0..300_u32) {
            let (first, cap) = (Duration::from_millis(first), Duration::from_millis(cap));
            let backoff = Backoff { first, cap, max_attempts };
            let delays = |random| (1..max_attempts).filter_map(move |n| backoff.delay_after(n, random)).sum::<Duration>();
            prop_assert_eq!(backoff.longest(), delays(1.0));
            prop_assert!(backoff.longest() >= delays(0.3));
        }
    }
}
