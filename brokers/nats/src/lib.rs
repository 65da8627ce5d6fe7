//! NATS JetStream adapter of Landfall.
//!
//! * **A topic** is a stream with one subject per shard, `<prefix><topic>.<shard>`. A key is hashed over the shards, so
//!   that one subject holds the messages of a key in order.
//! * **Accepted** means that the stream acknowledged the message: the leader has written it and, with several replicas,
//!   a majority. The server writes without fsync unless it has `sync_interval: always`; the doctor reports that.
//! * **Order**: the messages of a key are sent in an atomic batch if the server supports them (2.12), which is stored
//!   completely or not at all. Otherwise each message waits for the acknowledgement of its predecessor, with many keys
//!   in flight at the same time. The publisher measures which of the two is faster (ADR 15).
//! * **Deduplication**: `Nats-Msg-Id` is the broker id; the stream remembers it for its duplicate window.
//! * **A group** has one durable pull consumer per shard, owned by one member at a time. A member that takes a shard
//!   over creates the next consumer at the position of the last one, and deletes that (ADR 15). Unacknowledged messages
//!   are redelivered in order, and the former member can acknowledge nothing more.

mod administration;
mod answer;
mod api;
mod atomic;
mod broker;
mod chains;
mod claim;
mod config;
mod connection;
mod doctor;
mod error;
mod group;
mod members;
mod names;
mod pace;
mod plan;
mod publisher;
mod reader;
mod send;
mod shard;
mod subscriber;
mod topic;
mod unreadable;
mod wire;
mod worker;

pub use broker::Nats;
pub use config::Options;
