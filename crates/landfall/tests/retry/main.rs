//! `landfall::retry` on a clock that the tests turn: every time in here is exact, and none passes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod attempts;
mod bulkhead;
mod circuit;
mod collapse;
mod metrics;
mod outage;
mod scene;
