//! Model tests of breaker, budget and jitter over generated histories. Planted bugs show that each checker finds them.

mod breaker;
mod breaker_model;
mod budget;
mod jitter;
