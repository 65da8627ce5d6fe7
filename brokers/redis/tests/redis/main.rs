//! Tests against real servers. Most share one ([`support::shared`]). Redis starts quickly, so tests that disturb a
//! server or need special settings start their own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot continue has failed")]

mod conformance;
mod dedup;
mod doctor;
mod failover;
mod faults;
mod foreign;
mod groups;
mod hostile;
mod login;
mod refusals;
mod support;
