//! Several relay processes on one PostgreSQL: some of them paused past their leases, some of them stopped, and a broker
//! that takes no message of one key for a while.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed"
)]

mod failing_head;
mod graceful;
mod paused;
mod stage;

/// The worker's binary.
const WORLD: &str = env!("CARGO_BIN_EXE_world");
