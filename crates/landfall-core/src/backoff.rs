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
    }
}
