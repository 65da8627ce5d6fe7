//! The whole path over every broker, as users run it: writers, PostgreSQL, two daemons that relay and push, the broker,
//! and two consumer processes. All of them are killed, paused and disconnected for a minute, and the history checker
//! judges the effects.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod minute;
mod planted;

/// The program that runs the writers, the consumers and the operator; the daemon `landfall` is beside it.
const SOAK: &str = env!("CARGO_BIN_EXE_soak");
