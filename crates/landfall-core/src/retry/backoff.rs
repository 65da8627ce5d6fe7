use std::time::Duration;

/// Exponential backoff: delays double from `first` up to `cap`, for at most `max_attempts` attempts.
///
/// Pure: the caller supplies the random number, so tests are deterministic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    pub cap: Duration,
    pub max_attempts: u32,
}

impl Backoff {
    /// Returns the delay after attempt number `attempt` (from 1) failed, or `None` if that was the last one.
    ///
    /// `random` in `0.0..1.0` spreads the delay over its upper half. At least half of it gives a failing dependency
    /// time to recover; the spread keeps clients from returning together.
    pub fn delay_after(&self, attempt: u32, random: f64) -> Option<Duration> {
        if attempt >= self.max_attempts {
            return None;
        }
        let doublings = attempt.saturating_sub(1).min(31);
        let full = self.first.saturating_mul(1 << doublings).min(self.cap);
        Some(full.mul_f64(0.5 + 0.5 * random.clamp(0.0, 1.0)))
    }

    /// Returns the longest possible sum of all delays, from the first failure to the last.
    pub fn longest(&self) -> Duration {
        let delays = self.max_attempts.saturating_sub(1);
        let (mut sum, mut delay) = (Duration::ZERO, self.first);
        for done in 0..delays {
            if delay >= self.cap || delay.is_zero() || done > 31 {
                // Every further delay is the same.
                return sum.saturating_add(delay.min(self.cap).saturating_mul(delays - done));
            }
            sum = sum.saturating_add(delay);
            // `delay_after` stops doubling here too.
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
    fn delays_double_up_to_the_cap_and_end() {
        let full: Vec<_> = (1..=10).map(|attempt| BACKOFF.delay_after(attempt, 1.0)).collect();
        let millis = |n| Some(Duration::from_millis(n));
        assert_eq!(full[..3], [millis(100), millis(200), millis(400)]);
        assert_eq!(full[6..], [millis(5000), millis(5000), millis(5000), None]);
    }

    proptest! {
        #[test]
        fn delay_stays_within_its_bounds(attempt in 1u32.., random in 0.0..1.0) {
            if let Some(delay) = BACKOFF.delay_after(attempt, random) {
                prop_assert!(delay >= BACKOFF.first / 2 && delay <= BACKOFF.cap);
                prop_assert!(attempt < BACKOFF.max_attempts);
            }
        }

        #[test]
        fn longest_is_the_sum_of_all_delays(
            first in 0..10_000_u64,
            cap in 0..1_000_000_u64,
            max_attempts in 0..300_u32,
        ) {
            let (first, cap) = (Duration::from_millis(first), Duration::from_millis(cap));
            let backoff = Backoff { first, cap, max_attempts };
            let delays = |random| (1..max_attempts).filter_map(move |n| backoff.delay_after(n, random));
            prop_assert_eq!(backoff.longest(), delays(1.0).sum::<Duration>());
            prop_assert!(backoff.longest() >= delays(0.3).sum::<Duration>());
        }
    }
}
