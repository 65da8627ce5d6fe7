//! Idempotent work: the engine, the store in memory, locks and guards.

mod attribute;
mod cache;
mod engine;
mod faults;
mod guards;
mod layer;
mod lock;
mod memory;
mod redis;
mod redis_lock;
mod test_kit;
mod transaction;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use landfall::idempotency::{Fingerprint, FingerprintBuilder, Identity, OnUnknown, Policy, Scope};

pub(crate) const SHORT: Duration = Duration::from_millis(300);

pub(crate) fn order(key: &str) -> Identity {
    Identity::new(Scope::principal("shop").unwrap(), "order", key).unwrap()
}

pub(crate) fn request(text: &str) -> Fingerprint {
    FingerprintBuilder::new("test").part(text).finish()
}

pub(crate) fn rerun() -> Policy {
    Policy::new(OnUnknown::Rerun).with_wait(Duration::from_secs(30))
}

pub(crate) fn impatient() -> Policy {
    Policy::new(OnUnknown::Rerun).with_wait(Duration::from_millis(20))
}

/// Counts effects.
#[derive(Debug, Clone, Default)]
pub(crate) struct Effects(Arc<AtomicU32>);

impl Effects {
    pub(crate) fn add(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}
