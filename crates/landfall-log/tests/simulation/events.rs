//! The events that the test records in the disk's journal: calls to the log and their results.

use landfall_core::{GroupName, Message, Outcome, ProducerName, TopicName};
use landfall_log::TopicSettings;

use crate::content::{Content, message_count};

/// A call to the log, its result, or something read from it.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// A call starts.
    CallStarted(Call),
    /// The same call returned.
    CallReturned(CallResult),
    /// The log was opened and this is its whole content: from now on it must not be lost.
    Seen(Content),
    /// This was read from an open log. Unsynced messages may be missing.
    Read(Content),
    /// The log was closed, and everything accepted is durable.
    Closed,
    Registered(ProducerName, u64, u16),
    /// A group starts to acknowledge everything before these offsets.
    Acknowledging(GroupName, TopicName, Vec<u64>),
    /// The acknowledgement is durable.
    Acknowledged(GroupName, TopicName, Vec<u64>),
    Seeking(GroupName, TopicName, Vec<u64>),
    SeekCompleted(GroupName, TopicName, Vec<u64>),
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
pub(crate) enum CallResult {
    Outcomes(Vec<Outcome>),
    Done,
    /// Maintenance is done, and this content remains.
    Remaining(Content),
    /// The call may or may not have had an effect.
    Failed,
}

impl Event {
    pub(crate) fn outline(&self) -> String {
        match self {
            Event::CallStarted(Call::Publish(messages)) => format!("publishing {} messages", messages.len()),
            Event::CallStarted(Call::Produce { producer, first, messages, .. }) => {
                format!("{producer} produces {} messages from sequence {first}", messages.len())
            }
            Event::CallStarted(call) => format!("{call:?}"),
            Event::CallReturned(CallResult::Outcomes(outcomes)) => {
                let accepted = outcomes.iter().filter(|outcome| outcome.is_accepted()).count();
                format!("accepted {accepted} of {}", outcomes.len())
            }
            Event::CallReturned(CallResult::Remaining(content)) => {
                format!("{} messages remain", message_count(content))
            }
            Event::Seen(content) => format!("seen {} messages", message_count(content)),
            Event::Read(content) => format!("read {} messages", message_count(content)),
            other => format!("{other:?}"),
        }
    }
}
