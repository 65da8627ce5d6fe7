//! Tests of the real binary, driven over its command line, HTTP and SQL, on every database.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail the test they help")]

mod bad_messages;
mod bad_starts;
mod brokers;
mod console;
mod damage;
mod dead_letters;
mod deliveries;
mod descriptors;
mod doctor;
mod fencing;
mod group_commit;
mod grpc;
mod half_archive;
mod half_examples;
mod half_faults;
mod half_messages;
mod half_services;
mod half_shards;
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
mod records;
mod redrive_check;
mod redrives;
mod retention;
mod routes;
mod serve;
mod support;
mod tls;
mod tokens;
mod topics;
mod trace;
mod unreadable;
mod upgrade;
