//! `[broker]`: settings in the same words for every broker. `stores/settings.rs` maps them to brokers that are reached
//! over the network.

use std::time::Duration;

use super::Address;
use crate::topics::TopicSettings;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Broker {
    pub(crate) url: Address,
    /// Partitions of a new topic; `None` takes the broker's own default.
    pub(crate) partitions: Option<u32>,
    pub(crate) acknowledge: Acknowledge,
    pub(crate) flush: Flush,
    /// The settings of topics created by their first message, and the defaults of `topic create`.
    pub(crate) topic: TopicSettings,
}

/// When a broker acknowledges a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Acknowledge {
    /// At once. A crash of the sender may lose it.
    None,
    /// One server has it. The loss of that server, or its power, may lose it.
    Leader,
    /// It is as durable as the broker can make it.
    #[default]
    All,
}

/// When a broker writes messages to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Flush {
    /// As often as the broker does by default; the embedded log with every batch.
    #[default]
    Batch,
    /// After this number of messages at the latest.
    Messages(u32),
    /// After this time at the latest.
    Interval(Duration),
}

impl Default for Broker {
    fn default() -> Self {
        Self {
            url: Address::new("log:landfall-data/log"),
            partitions: None,
            acknowledge: Acknowledge::default(),
            flush: Flush::default(),
            topic: TopicSettings::default(),
        }
    }
}
