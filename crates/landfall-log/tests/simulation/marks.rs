//! What the test writes into the disk's journal: what it asks the log for and what it is told.

use landfall_core::{GroupName, Message, Outcome, ProducerName, TopicName};
use landfall_log::TopicSettings;

use crate::content::{Content, message_count};

/// What the log was asked for and what it answered.
#[derive(Debug, Clone)]
pub(crate) enum Mark {
    /// A call begins.
    Calling(Call),
    /// The same call has returned.
    Answered(Answer),
    /// The log was opened and all of this was read from it: from now on it must not go away.
    Seen(Content),
    /// This was read from a log that is open. There may be more that nobody sees yet.
    Read(Content),
    /// The log was closed, and all that was accepted is durable.
    Closed,
    Registered(ProducerName, u64, u16),
    /// A group begins to acknowledge what stands before these offsets.
    Acknowledging(GroupName, TopicName, Vec<u64>),
    /// That is durable now.
    Acknowledged(GroupName, TopicName, Vec<u64>),
    Seeking(GroupName, TopicName, Vec<u64>),
    Sought(GroupName, TopicName, Vec<u64>),
}

#[derive(Debug, Clone)]
pub(crate) enum Call {
    Publish(Vec<Message>),
    Produce { producer: ProducerName, topic: TopicName, partition: u32, first: u64, messages: Vec<Message> },
    Create(TopicName, u32, TopicSettings),
    Grow(TopicName, u32),
    Configure(TopicName, TopicSettings),
    Delete(TopicName),
    Maintain,
}

#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Outcomes(Vec<Outcome>),
    Done,
    /// Maintenance was done, and this is left.
    Left(Content),
    /// Nobody knows whether it was done.
    Failed,
}

impl Mark {
    pub(crate) fn outline(&self) -> String {
        match self {
            Mark::Calling(Call::Publish(messages)) => format!("publishing {} messages", messages.len()),
            Mark::Calling(Call::Produce { producer, first, messages, .. }) => {
                format!("{producer} produces {} messages from {first} on", messages.len())
            }
            Mark::Calling(call) => format!("{call:?}"),
            Mark::Answered(Answer::Outcomes(outcomes)) => {
                let accepted = outcomes.iter().filter(|outcome| outcome.is_accepted()).count();
                format!("accepted {accepted} of {}", outcomes.len())
            }
            Mark::Answered(Answer::Left(content)) => format!("left {} messages", message_count(content)),
            Mark::Seen(content) => format!("seen {} messages", message_count(content)),
            Mark::Read(content) => format!("read {} messages", message_count(content)),
            other => format!("{other:?}"),
        }
    }
}
