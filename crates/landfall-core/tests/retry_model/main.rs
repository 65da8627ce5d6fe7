//! The breaker, the budget and the jitter against models that a reader can check at a glance, with generated histories;
//! and the checkers themselves against planted bugs, each of which they must find.

mod breaker;
mod breaker_model;
mod budget;
mod jitter;
