//! The adapter against real servers. Most tests share one ([`support::shared`]). A NATS is started in no time, so that
//! whoever disturbs a server or needs a special one starts it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod cluster;
mod conformance;
mod disk;
mod doctor;
mod foreign;
mod groups;
mod outage;
mod refusals;
mod secure;
mod skew;
mod support;
