//! Check-back: the coordinator finds out what became of undecided half messages (K2).
//!
//! ```text
//!   claim due messages ─▶ ask: database, HTTP, gRPC ─▶ committed, rolled back ─▶ decide; the first verdict is final
//!                                                   └▶ unknown ─▶ ask again with backoff; after the limit: parked
//! ```
//!
//! Unknown is never "rolled back": an error, a timeout, a response that is not an answer. A claim expires, so a
//! coordinator may die or stop at any point: another one, or the next one, asks again. Any number may run.
//!
//! * [`Coordinator`] is the loop, [`Options`] its limits;
//! * [`Targets`] asks in order, [`CheckBackTarget`] is one way to ask;
//! * [`Shards`] keeps half messages in several databases, by topic;
//! * [`ServiceResolver`] turns the name of a service into addresses;
//! * `grpc`, with the feature of this name, answers check-backs in a Rust service.
//!
//! [`half`](crate::half) is the side of the sender.

mod coordinator;
#[cfg(feature = "grpc")]
pub mod grpc;
mod options;
mod resolver;
mod shards;
mod target;

pub use coordinator::Coordinator;
pub(crate) use coordinator::decide;
pub use options::Options;
pub use resolver::{ServiceResolver, StaticServices};
pub use shards::{Shards, Topics};
pub use target::{Answer, CheckBackTarget, Targets};
