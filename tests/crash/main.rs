//! A process is killed: at every boundary, at any moment, and so is the database server under it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed"
)]

mod boundary;
mod planted;
mod random;
mod server;

/// The worker's binary.
const WORLD: &str = env!("CARGO_BIN_EXE_world");
