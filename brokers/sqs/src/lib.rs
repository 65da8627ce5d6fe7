//! Amazon SQS adapter of Landfall. A topic is one queue.
//!
//! * **Accepted** means that SQS acknowledged the message. It stores every message redundantly before it answers.
//! * **Order**: on FIFO queues, the default, the key is the message group. SQS delivers the next messages of a group
//!   only when the previous ones are acknowledged. Standard queues (`fifo=false`) have no order.
//! * **Deduplication**: on FIFO queues SQS drops messages with an id that it accepted within the last five minutes.
//!   Standard queues do not deduplicate.
//!
//! A queue has one set of consumers: all groups share it. SQS deletes acknowledged messages, so there is no replay.

mod administration;
mod broker;
mod client;
mod config;
mod doctor;
mod error;
mod names;
mod publisher;
mod queues;
mod subscriber;
mod wire;

pub use broker::Sqs;
pub use config::{AccessKey, Options};
