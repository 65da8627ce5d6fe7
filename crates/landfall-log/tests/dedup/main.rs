//! A message whose id the topic holds is answered with its first place and not stored again, whatever has happened
//! since.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../support/failing_disk.rs"]
mod failing_disk;
mod ids;
mod killed;
mod scene;
#[path = "../support/mod.rs"]
mod support;
mod topics;
mod trouble;
