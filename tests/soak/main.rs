//! The soak as a test: a minute of all faults on each database, planted bugs that it must detect, and the time of a
//! takeover. `make soak` runs it for ten minutes each.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test fails by panicking")]

mod command;
mod minute;
mod planted;
mod takeover;
mod unordered;

/// The program that runs the processes of a soak.
const SOAK: &str = env!("CARGO_BIN_EXE_soak");
