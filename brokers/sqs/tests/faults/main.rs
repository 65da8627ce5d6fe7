//! What goes wrong between Landfall and SQS, on real servers: nothing is lost, nothing takes effect twice, keys keep
//! their order, and it goes on by itself afterwards.
//!
//! One promise is not shown here: order over a restart of the service. ElasticMQ keeps messages on disk and not their
//! order; SQS is not restarted by anybody.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod credentials;
mod cut;
mod held;
mod load;
mod missing;
mod outage;
