use std::time::{Duration, Instant};

use super::window::{BUCKETS, SlidingWindow};

/// A retry budget: within any `window`, retries ≤ min(`ratio` × successes + `floor`, `cap`). It keeps retries from
/// overloading a failing dependency.
///
/// Pure: the caller supplies the time.
#[derive(Debug, Clone)]
pub struct Budget {
    options: BudgetOptions,
    successes: SlidingWindow<1>,
    retries: SlidingWindow<1>,
}

/// How many retries a [`Budget`] allows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BudgetOptions {
    /// Retries per success; NaN and negative values count as 0.
    pub ratio: f64,
    /// Retries allowed without any success, so that a rarely used dependency gets its second attempt.
    pub floor: u32,
    /// Retries allowed however many calls succeed; `u32::MAX` is no limit. Below `floor`, it wins.
    pub cap: u32,
    /// The time over which retries and successes are counted.
    pub window: Duration,
}

impl Default for BudgetOptions {
    /// One retry per ten successes, plus ten, and at most a thousand in every ten seconds.
    fn default() -> Self {
        Self { ratio: 0.1, floor: 10, cap: 1000, window: Duration::from_secs(10) }
    }
}

impl Budget {
    pub fn new(options: BudgetOptions) -> Self {
        // Successes expire up to a bucket early and retries up to a bucket late: the budget errs towards no retry.
        let successes = SlidingWindow::new(options.window, BUCKETS);
        let retries = SlidingWindow::new(options.window, BUCKETS + 1);
        Self { options, successes, retries }
    }

    /// Records a successful call.
    pub fn succeeded(&mut self, now: Instant) {
        self.successes.add(now, [1]);
    }

    /// Spends one retry if one is left, and returns whether it was.
    #[must_use]
    pub fn take(&mut self, now: Instant) -> bool {
        let allowed = self.left(now) > 0;
        if allowed {
            self.retries.add(now, [1]);
        }
        allowed
    }

    /// Returns how many retries are left.
    pub fn left(&mut self, now: Instant) -> u64 {
        let ([successes], [retries]) = (self.successes.count(now), self.retries.count(now));
        let earned = self.options.ratio.max(0.0) * successes as f64;
        let allowed = (earned as u64).saturating_add(u64::from(self.options.floor));
        let allowed = allowed.min(u64::from(self.options.cap));
        allowed.saturating_sub(retries)
    }
}
