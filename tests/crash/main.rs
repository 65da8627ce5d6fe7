//! A process is killed: at every boundary, and at any moment.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed"
)]

mod boundary;
mod planted;
mod random;
mod strategy;

/// The worker's binary.
const WORLD: &str = env!("CARGO_BIN_EXE_world");
