//! `landfall::retry` on a paused clock: every time is exact.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod attempts;
mod bulkhead;
mod circuit;
mod collapse;
mod fixture;
mod metrics;
mod outage;
