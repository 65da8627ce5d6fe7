//! Tests that are specific to PostgreSQL: snapshot windows, rotation, row locks, SQL writers, cached plans. The
//! conformance suites are in `conformance.rs`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod commit;
mod competing;
mod connect;
mod fencing;
mod half_message;
mod no_dead_rows;
mod order;
mod plain_sql;
mod plan;
mod pooler;
mod prefetch;
mod probe;
mod redrive;
mod restore;
mod rotation;
mod schema;
mod stage;
mod wake;
mod watermarks;
