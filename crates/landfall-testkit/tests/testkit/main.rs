//! Tests of the testkit: servers, brokers, checkers, and the planted bugs that its suites must detect.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod broker_planted_bugs;
mod chaos;
mod chaos_conformance;
mod database_planted_bugs;
mod database_planted_races;
mod history;
mod history_properties;
mod mariadb_server;
mod memory_broker;
mod memory_broker_conformance;
mod not_run;
mod planted_broker;
mod planted_database;
mod planted_idempotency;
mod planted_postgres;
mod planted_traffic;
mod postgres_server;
mod proxy;
mod suite_is_complete;
mod traffic;
