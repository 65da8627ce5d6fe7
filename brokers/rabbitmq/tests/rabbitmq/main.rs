//! Tests against a real server that all tests share ([`support::shared`]). Tests that kill it, pause it or fill it use
//! it exclusively ([`support::exclusive`]).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot continue has failed")]

mod alarms;
mod cluster;
mod conformance;
mod doctor;
mod faults;
mod foreign;
mod hostile;
mod members;
mod overflow;
mod refusals;
mod secure;
mod silence;
mod support;
