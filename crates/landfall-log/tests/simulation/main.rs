//! The log on a disk that forgets: generated work, crashes at every moment of it, damage, and a reference that says
//! what must be found afterwards.
//!
//! ```text
//! random ─▶ workload ─▶ session ─▶ Log ─▶ disk ─▶ journal ─▶ crash ─▶ images ─▶ session ─▶ verdict
//!                          └───────────── marks ─────┘           reference ──────────┘
//! ```
//!
//! Everything follows from one number, which is printed. To see a failure again:
//! `LANDFALL_SEED=<number> cargo test -p landfall-log --test simulation`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod change;
mod consume;
mod content;
mod crash;
mod disk;
mod explore;
mod journal;
mod marks;
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

/// Failpoints are in every log of the process, so a test that sets one runs alone.
static FAILPOINTS: RwLock<()> = RwLock::new(());

fn shared_failpoints() -> RwLockReadGuard<'static, ()> {
    FAILPOINTS.read().unwrap_or_else(PoisonError::into_inner)
}

fn only_failpoints() -> RwLockWriteGuard<'static, ()> {
    FAILPOINTS.write().unwrap_or_else(PoisonError::into_inner)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts")
}
