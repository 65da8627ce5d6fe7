//! Conformance suites: the contract of each port, tested against real servers.
//!
//! A suite is a set of cases and a macro. A case is an async function that panics if a promise is broken. The macro
//! turns every case into a test of the adapter's crate: [`database_conformance!`](crate::database_conformance),
//! [`broker_conformance!`](crate::broker_conformance), [`import_conformance!`](crate::import_conformance) and
//! [`idempotency_conformance!`](crate::idempotency_conformance). The cases
//! test all that the ports' documentation promises, and nothing that it leaves to the adapter.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a case fails by panicking")]

pub mod broker;
mod capabilities;
pub mod database;
pub mod idempotency;
pub mod import;
pub mod record_rollback;
mod sample;
pub mod server_database;
