//! RabbitMQ behind the ports of Landfall, over AMQP 0-9-1.
//!
//! * **Accepted** means that every group's queue has it: quorum queues, written and synced by a majority of their
//!   members, which the broker says with a publisher confirm.
//! * **Order** holds per key: a key belongs to one of 32 slots, a slot to one queue of each group, and a queue has one
//!   active consumer at a time.
//! * **Deduplication** is the inbox's alone: RabbitMQ has none. A message that is sent again is stored again.
//!
//! There is no replay: a message reaches the groups that were there when it was published, and while there is none it
//! is refused for now ([`NO_CONSUMER`](landfall_core::ErrorCode::NO_CONSUMER)).

mod acks;
mod administration;
mod broker;
mod config;
mod confirm;
mod confirm_channel;
mod doctor;
mod error;
mod layout;
mod link;
mod management;
mod member;
mod names;
mod publisher;
mod reach;
mod subscriber;
mod tls;
mod warm_up;
mod wire;

pub use broker::RabbitMq;
pub use config::{Management, Options};
pub use names::SLOTS;
