//! What is special about PostgreSQL: concurrent writers, locks that wait, plain SQL from outside, cached plans.
//! What every database must do is in `conformance.rs`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod commit;
mod competing;
mod connect;
mod fencing;
mod late_commit;
mod marks;
mod order;
mod plain_sql;
mod plan;
mod pooler;
mod read_ahead;
mod redrive;
mod restore;
mod rotation;
mod schema;
mod stage;
mod wake;
