use std::time::{Duration, Instant};

use crate::retry_window::{BUCKETS, SlidingWindow};

/// Retries are allowed as long as they are few beside the calls that succeed, so that a dependency that fails is not
/// buried under them: within any `window`, retries ≤ `ratio` × successes + `floor`.
///
/// Pure: the caller brings the time.
#[derive(Debug, Clone)]
pub struct Budget {
    options: BudgetOptions,
    successes: SlidingWindow<1>,
    retries: SlidingWindow<1>,
}

/// How many retries there may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BudgetOptions {
    /// Retries for each success; what is not a number, or less than nothing, is nothing.
    pub ratio: f64,
    /// Retries that are allowed even if nothing succeeds, so that a quiet dependency gets its second try.
    pub floor: u32,
    /// The time over which both are counted.
    pub window: Duration,
}

impl Default for BudgetOptions {
    /// One retry for ten successes, and ten in each ten seconds besides.
    fn default() -> Self {
        Self { ratio: 0.1, floor: 10, window: Duration::from_secs(10) }
    }
}

impl Budget {
    pub fn new(options: BudgetOptions) -> Self {
        // Successes are forgotten up to a bucket early and retries up to a bucket late: in doubt there is no retry.
        let successes = SlidingWindow::new(options.window, BUCKETS);
        let retries = SlidingWindow::new(options.window, BUCKETS + 1);
        Self { options, successes, retries }
    }

    /// A call succeeded.
    pub fn succeeded(&mut self, now: Instant) {
        self.successes.add(now, [1]);
    }

    /// Takes one retry out of the budget if one is left, and says whether it was.
    #[must_use]
    pub fn take(&mut self, now: Instant) -> bool {
        let allowed = self.left(now) > 0;
        if allowed {
            self.retries.add(now, [1]);
        }
        allowed
    }

    /// The retries that may still be made now.
    pub fn left(&mut self, now: Instant) -> u64 {
        let ([successes], [retries]) = (self.successes.count(now), self.retries.count(now));
        let earned = self.options.ratio.max(0.0) * successes as f64;
        let allowed = (earned as u64).saturating_add(u64::from(self.options.floor));
        allowed.saturating_sub(retries)
    }
}
