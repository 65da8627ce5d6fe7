//! Amazon SQS behind the ports of Landfall.
//!
//! A topic is one queue. What the words mean here:
//!
//! * **Accepted**: SQS answered that it has the message; it keeps every message in several places before it answers.
//! * **Order**: on FIFO queues, which are the default, the key is the message group, and SQS hands out the next messages
//!   of a group only when the ones before are finished. Standard queues (`fifo=false`) have no order.
//! * **Dedup**: on FIFO queues SQS drops what it accepted under the same id within the last five minutes. Standard
//!   queues recognise no copies.
//!
//! A queue has one set of consumers: all groups share it. What was finished is gone, so there is no replay.

mod administration;
mod broker;
mod client;
mod clock;
mod config;
mod doctor;
mod error;
mod member;
mod names;
mod poll;
mod publisher;
mod queues;
mod settle;
mod subscriber;
mod visibility;
mod wire;

pub use broker::Sqs;
pub use config::{AccessKey, Options};
