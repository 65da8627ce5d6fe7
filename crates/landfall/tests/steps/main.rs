//! Each step against a real database.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod consume;
mod fencing;
mod fixture;
mod housekeeping;
mod import;
mod metrics;
mod produce;
mod relay;
