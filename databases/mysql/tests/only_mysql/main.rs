//! What is special about MySQL and MariaDB: collations, time zones, deadlocks, statements that commit by themselves, a
//! limit on packets, row locks that wait. What every database must do is in `conformance.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod commit;
mod competing;
mod connect;
mod crash;
mod cut_off;
mod deadlock;
mod fencing;
mod late_commit;
mod packet;
mod plain_sql;
mod plan;
mod redrive;
mod schema;
mod stage;
mod status;
mod text;
mod time_zone;
