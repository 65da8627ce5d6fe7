//! The pace of a job: steps at its beginning, and a rate.

use std::time::Duration;

/// The first letters of a job, the share of the second step and of the third one.
const FIRST: u64 = 5;
const SHARES: [u64; 2] = [100, 10];

/// The steps of a job's beginning: 5 letters, 1 %, 10 %, the rest. Each waits for the outcomes of the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ramp {
    pub matched: u64,
}

impl Ramp {
    /// Returns how many letters may have been begun when `settled` of them are settled.
    pub fn allowed(self, settled: u64) -> u64 {
        let shares = SHARES.map(|share| (self.matched / share).max(FIRST));
        let steps = [FIRST, shares[0], shares[1]];
        let step = steps.into_iter().find(|step| settled < *step).unwrap_or(self.matched);
        step.min(self.matched)
    }
}

/// Limits a rate: tokens arrive evenly, and at most a tenth of a second's is saved up.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    per_second: f64,
    tokens: f64,
}

impl TokenBucket {
    /// Creates an empty bucket, so that a runner that restarts does not exceed the rate.
    pub fn new(per_second: u32) -> Self {
        Self { per_second: f64::from(per_second), tokens: 0.0 }
    }

    /// Adds the tokens of the time since the last call.
    pub fn refill(&mut self, elapsed: Duration) {
        let most = (self.per_second / 10.0).max(1.0);
        self.tokens = (self.tokens + elapsed.as_secs_f64() * self.per_second).min(most);
    }

    /// Returns the whole tokens.
    pub fn available(&self) -> u64 {
        // Never negative.
        self.tokens as u64
    }

    pub fn take(&mut self, count: u64) {
        self.tokens -= count.min(self.available()) as f64;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn steps_wait_for_the_outcomes_before_them() {
        let ramp = Ramp { matched: 10_000 };
        let allowed = [0, 4, 5, 99, 100, 999, 1000, 10_000].map(|settled| ramp.allowed(settled));
        assert_eq!(allowed, [5, 5, 100, 100, 1000, 1000, 10_000, 10_000]);
        assert_eq!(Ramp { matched: 3 }.allowed(0), 3);
        assert_eq!(Ramp { matched: 7 }.allowed(5), 7);
    }

    proptest! {
        #[test]
        fn ramp_never_stalls_nor_exceeds_the_selection(matched in 1_u64..1_000_000, settled in 0_u64..1_000_000) {
            prop_assume!(settled < matched);
            let allowed = Ramp { matched }.allowed(settled);
            prop_assert!(allowed > settled && allowed <= matched, "{allowed}");
        }

        #[test]
        fn bucket_keeps_its_rate(rate in 1_u32..2000, waits in prop::collection::vec(0_u64..500, 1..200)) {
            let (mut bucket, mut taken, mut time) = (TokenBucket::new(rate), 0, Duration::ZERO);
            for wait in waits {
                let wait = Duration::from_millis(wait);
                time += wait;
                bucket.refill(wait);
                let now = bucket.available();
                bucket.take(now);
                taken += now;
                prop_assert!(taken as f64 <= time.as_secs_f64() * f64::from(rate) + 1e-6, "{taken} in {time:?}");
            }
        }
    }
}
