//! A broker in memory that several processes share: relays in child processes publish to one
//! [`MemoryBroker`](crate::MemoryBroker) in the test, which sees everything in the order in which it arrived.
//!
//! ```text
//!   relay process ── RemotePublisher ──┐
//!   relay process ── RemotePublisher ──┼─ TCP on 127.0.0.1 ──▶ PublishServer ──▶ MemoryBroker (in the test)
//!   relay process (paused)             ┘
//! ```
//!
//! The other way round, a [`DeliverServer`] hands the messages of one topic to a consumer in a process of its own, which
//! is killed or paused like the relays; a [`RemoteBroker`] is both ends as one broker.

mod broker;
mod deliver;
mod publisher;
mod server;
mod subscriber;
mod wire;

pub use broker::RemoteBroker;
pub use deliver::DeliverServer;
pub use publisher::RemotePublisher;
pub use server::PublishServer;
