//! Calls to what may fail: retried where that helps, and left alone where it hurts.
//!
//! A [`Dependency`] is one thing that is called (a payment gateway, a search cluster), shared by everybody who calls it.
//! Each call passes, in this order:
//!
//! ```text
//!   the breaker   open: not made                        CIRCUIT_OPEN, wait
//!   the bulkhead  too many at once: not made            BULKHEAD_FULL, wait
//!   the timeout   too long: given up                    TIMEOUT, retry
//!   its own code  fails                                 as it is classified
//!   the budget    before another try; empty: not made   BUDGET_EXHAUSTED, wait
//! ```
//!
//! [`Dependency::call`] makes one try, [`Dependency::retry`] as many as the policy, the deadline and the budget allow,
//! following `Retry-After`. A handler of [`crate::consume`] uses [`Dependency::attempt`] and returns the failure as it
//! is: the consumer does the waiting, without holding a transaction open meanwhile; a failure with the verdict
//! [`Verdict::Wait`](crate::Verdict::Wait) costs the message no attempt.
//!
//! [`Collapse`] makes one call of many that ask for the same at the same time. The parts without a runtime ([`Breaker`],
//! [`Budget`], [`RetryPolicy`], [`Class`]) are in `landfall-core`.
//!
//! [`Breaker`]: crate::Breaker
//! [`Budget`]: crate::Budget
//! [`RetryPolicy`]: crate::RetryPolicy
//! [`Class`]: crate::Class

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
