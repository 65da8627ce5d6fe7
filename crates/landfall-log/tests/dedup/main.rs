//! Deduplication: a message whose id is in the topic is not stored again; the publisher gets the position of the first
//! copy, whatever has happened since.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../support/failing_disk.rs"]
mod failing_disk;
mod ids;
mod killed;
mod scene;
#[path = "../support/mod.rs"]
mod support;
mod topics;
mod unstored;
