//! The log through its public interface. Tests with failpoints and a simulated disk are programs of their own.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "support/counting_disk.rs"]
mod counting_disk;
#[path = "support/failing_disk.rs"]
mod failing_disk;
mod support;

mod acknowledge;
mod admin;
mod conformance;
mod crash;
mod dedup;
mod doctor;
mod folder;
mod format;
mod groups;
mod maintain;
mod opening;
mod producers;
mod publish;
mod read_only;
mod recovery;
mod reference;
mod seek;
mod subscribe;
mod verify;
