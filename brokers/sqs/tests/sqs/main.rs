//! Tests against real servers with SQS's protocol. Most share one ElasticMQ ([`support::shared`]); tests that kill or
//! pause a server start their own ([`support::own`]).
//!
//! Faults between Landfall and SQS lose no message, cause no second effect and keep the order of keys. Everything
//! recovers without intervention. Order over a restart of the service is not tested: ElasticMQ persists messages but
//! not their order, and SQS has no restarts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot continue has failed")]

mod accounts;
mod conformance;
mod credentials;
mod cut;
mod doctor;
mod foreign;
mod hostile;
mod missing_queue;
mod outage;
mod secure;
mod support;
mod visibility;
