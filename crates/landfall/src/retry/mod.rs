//! Calls to remote services: timeout, retry with backoff, retry budget, circuit breaker, bulkhead.
//!
//! A [`Dependency`] is one remote service (a payment gateway, a search cluster), shared by all its callers. Each call
//! passes, in this order:
//!
//! ```text
//!   the breaker   open: not made                            CIRCUIT_OPEN, wait
//!   the bulkhead  too many calls: not made                  BULKHEAD_FULL, wait
//!   the timeout   expired: abandoned                        TIMEOUT, retry
//!   the call      failed                                    as the call classified it
//!   the budget    before another attempt; empty: not made   BUDGET_EXHAUSTED, wait
//! ```
//!
//! [`Dependency::call`] makes one attempt, [`Dependency::retry`] as many as the policy, the deadline and the budget
//! allow; it honours `Retry-After`. [`Dependency::retry_or_else`] has a fallback for calls that were not made. A
//! handler of [`crate::consume`] uses [`Dependency::attempt`] and returns the failure unchanged: the consumer waits,
//! without an open transaction. A failure with the verdict [`Verdict::Wait`](crate::Verdict::Wait) costs the message
//! no attempt.
//!
//! [`Collapse`] merges concurrent calls with the same key, and [`Collapse::debounce`] those that follow shortly after.
//! [`Breaker`], [`Budget`], [`RetryPolicy`] and [`Class`] need no runtime and can be used alone.

mod bulkhead;
mod collapse;
mod counters;
mod dependency;
mod health;
mod options;

pub use collapse::Collapse;
pub use dependency::Dependency;
pub use health::State;
pub use options::Options;

pub use landfall_core::{
    Breaker, BreakerOptions, BreakerState, Budget, BudgetOptions, Class, Failed, Jitter, Rejected, Repeat, RetryPolicy,
    Ticket,
};
