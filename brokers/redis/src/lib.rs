//! Redis Streams behind the ports of Landfall: a stream for each slice of a topic's keys.
//!
//! * **Accepted** means that Redis has appended the message, as durably as its `appendfsync` says: with `always` it is on
//!   disk. With `replicas=N` so many replicas have it besides.
//! * **Order**: a key is always in the same stream, a batch is appended by one script, and one member of a group at a
//!   time reads a stream, as long as it holds a lease in Redis.
//! * **Dedup**: the same script knows the ids of the last minutes (`dedup=`), so that a copy is accepted and not stored.
//!
//! Needs Redis 7.0 or newer,.

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
