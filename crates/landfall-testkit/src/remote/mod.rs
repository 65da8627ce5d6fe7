//! An in-memory broker shared by several processes. Relays in child processes publish over TCP to one
//! [`MemoryBroker`](crate::MemoryBroker) in the test, which records messages in the order of arrival.
//!
//! ```text
//!   relay process ── RemotePublisher ──┐
//!   relay process ── RemotePublisher ──┼─ TCP on 127.0.0.1 ──▶ PublishServer ──▶ MemoryBroker (in the test)
//!   relay process (paused)             ┘
//! ```
//!
//! A [`DeliverServer`] delivers the messages of one topic to a consumer in another process, which tests kill or pause.
//! A [`RemoteBroker`] combines both clients into one broker.

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
