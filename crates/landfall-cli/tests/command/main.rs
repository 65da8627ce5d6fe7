//! Tests of the real binary, driven over its command line, HTTP and SQL, on every database.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail the test they help")]

mod bad_messages;
mod bad_starts;
mod brokers;
mod damage;
mod dead_letters;
mod deliveries;
mod descriptors;
mod doctor;
mod fencing;
mod idempotency;
mod imports;
mod lists;
mod metrics;
mod order;
mod outages;
mod outbox;
mod poison;
mod push;
mod push_guards;
mod quickstart;
mod raw_http;
mod retention;
mod routes;
mod serve;
mod support;
mod tokens;
mod topics;
mod unreadable;
mod upgrade;
