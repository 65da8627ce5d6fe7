//! Dead letters: messages that failed for the last time, and those that wait behind one.
//!
//! ```text
//!   failed for the last time ─▶ park ─▶ landfall_dead_letter, its key held ─▶ redrive ─▶ the same handler
//!                                └─▶ <topic>.dlq, through the outbox of the same transaction
//! ```
//!
//! The consumer's side is in this module: parking, the `.dlq` topic, handling redriven messages, and rehearsing parked
//! ones. People find and redrive dead letters through [`DeadLetters`](landfall_core::DeadLetters).

mod backing_off;
mod headers;
mod park;
mod redrive;
mod rehearse;
mod topic;
mod unreadable;
mod writer;

pub(crate) use headers::with_failure_headers;
pub(crate) use park::Parker;
pub(crate) use redrive::Redriver;
pub(crate) use rehearse::Rehearser;
pub(crate) use topic::{DeadLetterTopic, OutboxTopic};
pub(crate) use unreadable::placeholder;
pub(crate) use writer::DeadLetterWriter;
