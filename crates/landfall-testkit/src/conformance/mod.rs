//! Conformance suites: what every adapter of a port must do, tested against the real thing.
//!
//! A suite is a set of cases, each an async function that panics when a promise is broken, and a macro that turns
//! every case into a test of the adapter's own crate: [`database_conformance!`](crate::database_conformance) and
//! [`broker_conformance!`](crate::broker_conformance). The cases test what the ports' documentation says, nothing
//! less and nothing an adapter is free to choose.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a case is a test: it fails by panicking")]

pub mod broker;
pub mod database;
pub mod import;
mod sample;
pub mod server_database;
