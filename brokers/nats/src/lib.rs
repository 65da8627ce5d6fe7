//! NATS JetStream behind the ports of Landfall.
//!
//! * **A topic** is a stream of its own with one subject per shard, `<prefix><topic>.<shard>`. A key is hashed over the
//!   shards, so that the messages of one key stand in one subject in their order.
//! * **Accepted** means that the stream acknowledged the message: written by the leader and, with several replicas, by
//!   a majority. The server writes without syncing unless it is told `sync_interval: always`; the doctor says so.
//! * **Order**: each message of a key is sent when the one before it has been acknowledged, with many keys in flight at
//!   once (ADR 15).
//! * **Dedup**: the broker id is `Nats-Msg-Id`; the stream remembers it for its duplicate window.
//! * **A group** keeps one durable pull consumer per shard, owned by one member at a time. Whoever takes a shard over
//!   makes the next consumer in line where the last one stands and deletes that (ADR 15): what was not finished comes
//!   again in order, and the member that lost the shard can acknowledge nothing more.

mod administration;
mod api;
mod broker;
mod claim;
mod config;
mod connection;
mod doctor;
mod error;
mod member;
mod names;
mod peers;
mod publish_ack;
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
