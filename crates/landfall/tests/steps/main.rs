//! The steps, each against a real database.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod consume;
mod fencing;
mod housekeeping;
mod import;
mod relay;
mod stage;
