//! A counted call, and the options that the tests start from.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use landfall::retry::{BreakerOptions, BudgetOptions, Jitter, Options, Repeat, RetryPolicy};
use landfall::{Backoff, Failure};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// Calls that may be repeated, with delays of at most 1, 2, 4 and 4 seconds and no deadline. The breaker never opens,
/// and the budget is unlimited. Each test overrides its subject.
pub(crate) fn options() -> Options {
    let backoff = Backoff { first: SECOND, cap: 4 * SECOND, max_attempts: 5 };
    Options {
        call_timeout: 10 * SECOND,
        policy: RetryPolicy { jitter: Jitter::Full, deadline: None, retry_after_cap: 60 * SECOND, ..backoff.into() },
        breaker: BreakerOptions { failure_rate: 2.0, ..BreakerOptions::default() },
        budget: BudgetOptions { floor: 1_000_000, cap: u32::MAX, ..BudgetOptions::default() },
        repeat: Repeat::Safe,
        ..Options::default()
    }
}

/// Counts calls.
#[derive(Debug, Clone, Default)]
pub(crate) struct Calls(Arc<AtomicU32>);

impl Calls {
    pub(crate) fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) async fn answer<T>(&self, answer: Result<T, Failure>) -> Result<T, Failure> {
        self.0.fetch_add(1, Ordering::SeqCst);
        answer
    }

    /// Never returns.
    pub(crate) async fn hang(&self) -> Result<(), Failure> {
        self.0.fetch_add(1, Ordering::SeqCst);
        std::future::pending().await
    }
}
