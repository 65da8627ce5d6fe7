use std::time::Duration;

use landfall_core::{Backoff, BreakerOptions, BudgetOptions, Jitter, Repeat, RetryPolicy};

/// How a dependency is called. The defaults suit a service in the same network.
///
/// ```
/// use std::time::Duration;
///
/// use landfall::retry::{Options, Repeat};
///
/// // A payment must not be repeated when its outcome is unknown.
/// let options = Options { call_timeout: Duration::from_secs(2), repeat: Repeat::Unsafe, ..Options::default() };
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
    /// Whether a call whose outcome is unknown may be repeated.
    pub repeat: Repeat,
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
            repeat: Repeat::Safe,
        }
    }
}
