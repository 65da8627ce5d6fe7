//! Tests against real servers. Most share one ([`support::shared`]). A NATS server starts quickly, so tests that
//! disturb a server or need special settings start their own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot continue has failed")]

mod cluster;
mod conformance;
mod disk;
mod doctor;
mod foreign;
mod groups;
mod hostile;
mod outage;
mod refusals;
mod secure;
mod skew;
mod support;
