//! NATS JetStream adapter of Landfall.
//!
//! * **A topic** is a stream with one subject per shard, `<prefix><topic>.<shard>`. A key is hashed over the shards, so
//!   that one subject holds the messages of a key in order.
//! * **Accepted** means that the stream acknowledged the message: the leader has written it and, with several replicas,
//!   a majority. The server writes without fsync unless it has `sync_interval: always`; the doctor reports that.
//! * **Order**: each message of a key is sent after the acknowledgement of its predecessor, with many keys in flight at
//!   the same time (ADR 15).
//! * **Deduplication**: `Nats-Msg-Id` is the broker id; the stream remembers it for its duplicate window.
//! * **A group** has one durable pull consumer per shard, owned by one member at a time. A member that takes a shard
//!   over creates the next consumer at the position of the last one, and deletes that (ADR 15). Unacknowledged messages
//!   are redelivered in order, and the former member can acknowledge nothing more.

mod administration;
mod api;
mod broker;
mod config;
mod connection;
mod doctor;
mod error;
mod names;
mod publisher;
mod reader;
mod subscriber;
mod topic;
mod wire;

pub use broker::Nats;
pub use config::Options;
