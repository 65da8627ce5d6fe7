//! Tests against real nodes. Most share one node ([`support::shared`]); the others start their own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot continue has failed")]

mod access;
mod cluster;
mod conformance;
mod disk;
mod doctor;
mod faults;
mod fencing;
mod foreign;
mod groups;
mod hostile;
mod order;
mod outcomes;
mod support;
