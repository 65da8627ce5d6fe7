//! A broker in memory that several processes share: relays in child processes publish to one
//! [`MemoryBroker`](crate::MemoryBroker) in the test, which sees everything in the order in which it arrived.
//!
//! ```text
//!   relay process ── RemotePublisher ──┐
//!   relay process ── RemotePublisher ──┼─ TCP on 127.0.0.1 ──▶ PublishServer ──▶ MemoryBroker (in the test)
//!   relay process (paused)             ┘
//! ```

mod publisher;
mod server;
mod wire;

pub use publisher::RemotePublisher;
pub use server::PublishServer;
