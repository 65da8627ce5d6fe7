//! SQLite: the conformance suites, and what is special about a database in a file.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod barrier;
mod conformance;
mod doctor;
mod folder;
mod foreign_writer;
mod import;
mod opening;
mod schema;
mod status;
mod writers;
