//! Redis Streams adapter of Landfall. A topic has one stream per shard of its keys.
//!
//! * **Accepted** means that Redis has appended the message, as durably as `appendfsync` says: with `always` it is on
//!   disk. With `replicas=N`, that many replicas have it too.
//! * **Order**: a key always maps to the same stream, and one script appends a batch. One member of a group at a time
//!   reads a stream, while it holds a lease in Redis.
//! * **Deduplication**: the same script remembers the ids of the last minutes (`dedup=`). A duplicate is accepted and
//!   not stored again.
//!
//! Requires Redis 7.0 or newer.

mod administration;
mod broker;
mod config;
mod doctor;
mod entry;
mod error;
mod group;
mod link;
mod names;
mod publisher;
mod reader;
mod script;
mod subscriber;
mod topics;
mod wire;

pub use broker::Redis;
pub use config::Options;
