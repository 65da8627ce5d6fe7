//! RabbitMQ adapter of Landfall, over AMQP 0-9-1.
//!
//! * **Accepted** means that every group's quorum queue has the message: a majority of its replicas has written and
//!   synced it. The broker reports this with a publisher confirm.
//! * **Order** holds per key. A key belongs to one of 32 slots, and a slot to one queue of each group. A queue has one
//!   active consumer at a time.
//! * **Deduplication**: RabbitMQ has none, so only the inbox deduplicates. A message that is sent again is stored
//!   again.
//!
//! There is no replay: a message reaches the groups that exist when it is published. Without any group it is refused as
//! retriable ([`NO_CONSUMER`](landfall_core::ErrorCode::NO_CONSUMER)).

mod administration;
mod broker;
mod config;
mod doctor;
mod error;
mod layout;
mod link;
mod management;
mod names;
mod publisher;
mod subscriber;
mod wire;

pub use broker::RabbitMq;
pub use config::{Management, Options};
pub use names::SLOTS;
