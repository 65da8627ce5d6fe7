//! Deduplication in addition to the inbox: a cache in front of it, and handlers whose own tables show what was done.

mod business;
mod cache;
#[cfg(feature = "redis-cache")]
mod redis;

pub(crate) use business::is_already_done;
pub use business::{already_done, changed};
pub use cache::DedupCache;
pub(crate) use cache::VerifiedCache;
#[cfg(feature = "redis-cache")]
pub use redis::RedisDedupCache;
