use std::time::Duration;

use landfall_core::{Backoff, BreakerOptions, BudgetOptions, Error, Jitter, Repeat, Result, RetryPolicy};
use tokio::sync::Semaphore;

/// How a dependency is called. The defaults suit a service in the same network.
///
/// ```
/// use std::time::Duration;
///
/// use landfall::retry::{Options, Repeat};
///
/// // A search may be repeated. By default a call is not, when its outcome is unknown.
/// let options = Options { call_timeout: Duration::from_secs(2), repeat: Repeat::Safe, ..Options::default() };
/// assert_eq!(Options::default().repeat, Repeat::Unsafe);
/// # drop(options);
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    /// The time limit of one attempt.
    pub call_timeout: Duration,
    /// The maximum number of calls in progress.
    pub concurrency: usize,
    /// The maximum number of callers that wait in the bulkhead; more are rejected at once.
    pub waiting: usize,
    /// How long a caller waits in the bulkhead before it is rejected.
    pub longest_wait: Duration,
    /// The delays, the number of attempts and the deadline of [`Dependency::retry`](super::Dependency::retry).
    pub policy: RetryPolicy,
    pub breaker: BreakerOptions,
    pub budget: BudgetOptions,
    /// Whether a call whose outcome is unknown may be repeated. Set [`Repeat::Safe`] for reads, and for writes that the
    /// receiver deduplicates.
    pub repeat: Repeat,
}

impl Options {
    /// Refuses values with which calls could not work as documented.
    pub(super) fn check(&self) -> Result<()> {
        let refused = |problem: String| Err(Error::invalid(format!("dependency option {problem}")));
        let Self { concurrency, breaker, budget, .. } = self;
        if !(1..=Semaphore::MAX_PERMITS).contains(concurrency) {
            let most = Semaphore::MAX_PERMITS;
            return refused(format!("concurrency is {concurrency}; it must be between 1 and {most}"));
        }
        for (name, count) in [("minimum_calls", breaker.minimum_calls), ("probes", breaker.probes)] {
            if count == 0 {
                return refused(format!("breaker.{name} is 0; it must be at least 1"));
            }
        }
        for (name, value) in [("breaker.failure_rate", breaker.failure_rate), ("budget.ratio", budget.ratio)] {
            if value.is_nan() || value < 0.0 {
                return refused(format!("{name} is {value}; it must be at least 0"));
            }
        }
        let windows = [("breaker.window", breaker.window), ("budget.window", budget.window)];
        for (name, duration) in windows.into_iter().chain([("call_timeout", self.call_timeout)]) {
            if duration.is_zero() {
                return refused(format!("{name} is zero; it must be longer"));
            }
        }
        Ok(())
    }
}

impl Default for Options {
    fn default() -> Self {
        let backoff = Backoff { first: Duration::from_millis(200), cap: Duration::from_secs(5), max_attempts: 5 };
        Self {
            call_timeout: Duration::from_secs(5),
            concurrency: 32,
            waiting: 256,
            longest_wait: Duration::from_secs(5),
            policy: RetryPolicy {
                jitter: Jitter::Full,
                deadline: Some(Duration::from_secs(30)),
                ..RetryPolicy::from(backoff)
            },
            breaker: BreakerOptions::default(),
            budget: BudgetOptions::default(),
            repeat: Repeat::default(),
        }
    }
}
