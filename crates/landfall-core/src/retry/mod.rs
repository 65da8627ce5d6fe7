//! When and how often to try again: backoff, retry policy, retry budget and circuit breaker.

pub(crate) mod backoff;
pub(crate) mod breaker;
pub(crate) mod budget;
pub(crate) mod class;
pub(crate) mod policy;
pub(crate) mod window;
