//! The adapter against real nodes. Most tests share one ([`support::shared`]); who needs another starts it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod access;
mod cluster;
mod conformance;
mod disk;
mod doctor;
mod faults;
mod fencing;
mod foreign;
mod groups;
mod order;
mod outcomes;
mod support;
