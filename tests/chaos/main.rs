//! Several relay processes on one PostgreSQL: some are paused past their leases, some are stopped, and the broker
//! accepts no message of one key for a while.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test fails by panicking")]

mod failing_head;
mod graceful;
mod paused;
mod scenario;

/// The worker's binary.
const WORKER: &str = env!("CARGO_BIN_EXE_worker");
