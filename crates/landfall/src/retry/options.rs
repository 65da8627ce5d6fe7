use std::time::Duration;

use landfall_core::{Backoff, BreakerOptions, BudgetOptions, Jitter, Repeat, RetryPolicy};

/// How a dependency is called. The default suits a service in the same network.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long one try may take.
    pub call_timeout: Duration,
    /// Calls that are on their way at the same time.
    pub concurrency: usize,
    /// Calls that may wait for one of those to end; more are turned away at once.
    pub waiting: usize,
    /// How long they wait before they are turned away too.
    pub longest_wait: Duration,
    /// The delays of [`Dependency::retry`](super::Dependency::retry), its number of tries and its deadline.
    pub policy: RetryPolicy,
    pub breaker: BreakerOptions,
    pub budget: BudgetOptions,
    /// Whether a call that may have happened can be made again.
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
