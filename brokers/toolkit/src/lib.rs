//! Building blocks that every broker adapter needs and that are easy to get subtly wrong.
//!
//! * [`InFlight`]: messages delivered to a consumer and not yet acknowledged, with delayed redelivery and generations;
//!   [`Receipt`] connects a [`Delivery`](landfall_core::adapter::Delivery) to them.
//! * [`KeySequencer`]: publishes a batch so that no message of a key is sent behind one that was not accepted.
//! * [`assignment`]: a fair share of partitions for each member of a group.
//!
//! None of it knows a broker or does I/O. Each block is tested against a simple model with generated actions.

pub mod assignment;
mod in_flight;
mod key_sequencer;
mod receipt;

pub use in_flight::{InFlight, InFlightMessage, Revoked};
pub use key_sequencer::{KeySequencer, Pipelining};
pub use receipt::{Receipt, Settle};
