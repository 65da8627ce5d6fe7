//! The adapter against a real server that all tests share ([`support::shared`]); who kills it, pauses it or lets it run
//! out of room is alone with it ([`support::alone`]).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod alarms;
mod cluster;
mod conformance;
mod doctor;
mod faults;
mod foreign;
mod members;
mod overflow;
mod refusals;
mod secure;
mod silence;
mod support;
