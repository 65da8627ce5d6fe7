//! Idempotent work: the same request, sent again, takes effect once and gets the same answer (I1–I6).
//!
//! | use | if |
//! |---|---|
//! | [`InTransaction`] | the work writes only to a database with Landfall's tables. One commit holds record and work |
//! | [`Idempotency`] | the work calls other systems. The record is a store of its own, with lease and epoch |
//! | [`Token`] with either | the server hands out the key, so that a form is submitted once |
//! | [`Windows`] | repeats are unwanted only for a while, such as text messages |
//! | [`StateGuard`] | the object has a state that says what may still happen |
//! | [`Locks`] | work must not overlap. A lock alone does not make a repeat harmless |
//!
//! ```text
//!   run ─▶ join callers of this process ─▶ claim ─▶ work, lease renewed ─▶ settle ─▶ answer
//!                     └ wait for the first      └ completed: replay; in flight elsewhere: poll, then 409
//! ```
//!
//! With the feature `axum`, `layer::IdempotencyLayer` does this for HTTP handlers, and `layer::KeyedRequest` for those
//! that use [`InTransaction`]. With the feature `macros`, the attribute `#[idempotent]` does it for functions.
//!
//! The fingerprint is compared before anything else, so another request under a used key is refused, also while the
//! first one runs. Every decision is one atomic statement of the store.

mod attempt;
mod canonical;
mod counted;
mod counters;
mod engine;
mod error;
mod flights;
#[cfg(feature = "axum")]
pub mod layer;
mod lock;
mod memory;
#[cfg(feature = "redis-cache")]
mod redis;
mod state_guard;
mod transaction;
mod window;

pub use landfall_core::idempotency::*;
#[cfg(feature = "macros")]
pub use landfall_macros::idempotent;

pub use attempt::Attempt;
pub use canonical::fingerprint_of;
pub use counted::CountedRecords;
pub use engine::{Answer, Idempotency, Policy, Work};
pub use error::Error;
pub use lock::{Lock, Locks};
pub use memory::{MemoryOptions, MemoryRecords};
#[cfg(feature = "redis-cache")]
pub use redis::{CachedRecords, RedisLeases, RedisRecords};
pub use state_guard::{Advanced, StateGuard};
pub use transaction::InTransaction;
pub use window::{Windowed, Windows};
