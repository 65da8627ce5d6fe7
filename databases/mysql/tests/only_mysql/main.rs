//! Tests that are specific to MySQL and MariaDB: collations, time zones, deadlocks, implicit commits, the packet limit,
//! row locks. The conformance suites are in `conformance.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod cancellation;
mod commit;
mod competing;
mod connect;
mod crash;
mod deadlock;
mod fencing;
mod packet;
mod plain_sql;
mod plan;
mod redrive;
mod schema;
mod stage;
mod status;
mod text;
mod time_zone;
