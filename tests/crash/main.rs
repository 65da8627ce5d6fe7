//! Processes are killed at every boundary and at random times.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test fails by panicking")]

mod boundary;
mod half;
mod half_planted;
mod idempotent;
mod planted;
mod random;
mod strategy;

/// The worker's binary.
const WORKER: &str = env!("CARGO_BIN_EXE_worker");
