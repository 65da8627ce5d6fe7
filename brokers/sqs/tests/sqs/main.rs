//! The adapter against real servers that speak SQS. What needs no special settings shares one ElasticMQ
//! ([`support::shared`]); who kills or pauses a server starts one ([`support::own`]).
//!
//! What goes wrong between Landfall and SQS is shown here: nothing is lost, nothing takes effect twice, keys keep their
//! order, and it goes on by itself afterwards. One promise is not: order over a restart of the service. ElasticMQ keeps
//! messages on disk and not their order; SQS is not restarted by anybody.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod accounts;
mod conformance;
mod credentials;
mod cut;
mod doctor;
mod foreign;
mod held;
mod missing;
mod outage;
mod secure;
mod support;
