//! The adapter against real servers. Most tests share one ([`support::shared`]). A Redis is started in no time, so that
//! whoever disturbs a server or needs a special one starts it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod conformance;
mod copies;
mod doctor;
mod failover;
mod faults;
mod foreign;
mod groups;
mod login;
mod refusals;
mod support;
