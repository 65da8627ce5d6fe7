//! The soak: everything at once, for as long as one likes, on a real server.
//!
//! ```text
//!   2 writer processes ─▶ proxy ─▶ producer's database ─▶ proxy ─▶ 3 relay processes ─┐
//!                                                                                     ▼
//!   operator process ─▶ both      consumer's database ◀─ proxy ◀─ consumer ◀─ broker (here)
//! ```
//!
//! While the writers (`writer`) do everything that makes an outbox hard, `trouble` kills and pauses the processes,
//! restarts the server and cuts connections, under a `COMMIT` most of all. Then everything heals, what is left drains
//! within a bound, and `judge` compares what was committed with what took effect.
//!
//! How the order of a key's commits is known: who writes for an account locks its row first and numbers its messages
//! inside the same transaction (`ledger`). The numbers of the effects must be 1, 2, 3… per account.
//!
//! What a message is known by is the token of the operation that sent it, not its id: a writer that sends again what
//! it had already sent would do so under a new id, and no inbox could tell.

pub mod actor;
mod doubled;
pub mod figures;
pub mod ground;
pub mod handler;
pub mod judge;
pub mod leases;
pub mod ledger;
pub mod order;
pub mod part;
pub mod plant;
pub mod run;
pub mod trouble;
pub mod watch;
pub mod worker;
pub mod writer;

pub use figures::Figures;
pub use order::Order;
pub use part::{Part, Play};
pub use plant::SoakPlant;
pub use run::{DatabaseKind, Options, run};
pub use trouble::Focus;
