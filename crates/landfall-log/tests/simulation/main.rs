//! The log on a simulated disk: generated work, crashes at every point of it, damage, and a reference model of what
//! must be found afterwards.
//!
//! ```text
//! random ─▶ workload ─▶ session ─▶ Log ─▶ disk ─▶ journal ─▶ crash ─▶ images ─▶ session ─▶ failure
//!                          └───────────── events ────┘           reference ──────────┘
//! ```
//!
//! All randomness comes from one printed seed. To reproduce a failure:
//! `LANDFALL_SEED=<number> cargo test -p landfall-log --test simulation`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod change;
mod consume;
mod content;
mod crash;
mod disk;
mod events;
mod explore;
mod journal;
mod messages;
mod promise;
mod random;
mod reference;
mod session;
mod tree;
mod workload;

mod acknowledge;
mod administration;
mod crashes;
mod damage;
mod faults;
mod model;
mod planted;
mod repair;
mod tail;
mod visibility;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Failpoints affect every log of the process, so a test that sets one runs alone.
static FAILPOINTS: RwLock<()> = RwLock::new(());

fn shared_failpoints() -> RwLockReadGuard<'static, ()> {
    FAILPOINTS.read().unwrap_or_else(PoisonError::into_inner)
}

fn exclusive_failpoints() -> RwLockWriteGuard<'static, ()> {
    FAILPOINTS.write().unwrap_or_else(PoisonError::into_inner)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts")
}
