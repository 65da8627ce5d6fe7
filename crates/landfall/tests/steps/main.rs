//! Each step against a real database.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod consume;
mod fencing;
mod fixture;
mod half;
mod half_shards;
mod housekeeping;
mod idempotency;
mod import;
mod metrics;
mod produce;
mod relay;
