//! The names that most services need: `use landfall::prelude::*`.
//!
//! Options are not among them, because each step has its own: write `relay::Options` or `consume::Options`.

pub use crate::consume::{
    BatchContext, BatchHandler, Consumer, Context, Handler, handler_fn, plain, plain_batch, typed, with_state,
};
pub use crate::produce::Outbox;
pub use crate::relay::Relay;
pub use landfall_core::{
    Broker, DeadLetters, ErrorCode, Failure, GroupName, Key, Kind, Message, MessageId, OutboxView, Schema, TopicName,
};
