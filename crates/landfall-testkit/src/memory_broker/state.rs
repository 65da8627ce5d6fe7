//! The broker's state: topics, groups, and the record of arrivals.

use std::collections::{BTreeMap, BTreeSet};

use landfall_core::adapter::wire;
use landfall_core::{GroupName, Message, Outcome, Position, Timestamp, TopicInfo, TopicName};

use super::fault::Faults;
use super::group::Group;

#[derive(Debug, Default)]
pub(super) struct State {
    topics: BTreeMap<TopicName, Vec<Message>>,
    /// Every stored message, in the order of arrival over all topics.
    arrivals: Vec<Arrival>,
    groups: BTreeMap<(TopicName, GroupName), Group>,
    pub(super) faults: Faults,
    pub(super) closed: bool,
}

#[derive(Debug)]
struct Arrival {
    topic: TopicName,
    offset: u64,
    time: Timestamp,
}

impl State {
    pub(super) fn publish(&mut self, batch: &[Message]) -> Vec<Outcome> {
        // After a message that was not accepted, its key is refused for the rest of the batch.
        let mut failed_keys = BTreeSet::new();
        let mut outcomes = Vec::with_capacity(batch.len());
        for message in batch {
            let key = message.key.as_ref().map(|key| (&message.topic, key));
            let outcome = if self.closed {
                super::closed()
            } else if key.is_some_and(|key| failed_keys.contains(&key)) {
                Outcome::behind_predecessor()
            } else {
                self.publish_one(message)
            };
            if !outcome.is_accepted() {
                failed_keys.extend(key);
            }
            outcomes.push(outcome);
        }
        outcomes
    }

    fn publish_one(&mut self, message: &Message) -> Outcome {
        match self.faults.take_for(message) {
            Some(fault) => {
                if fault.is_stored() {
                    self.store(message);
                }
                fault.outcome()
            }
            None => Outcome::Accepted(self.store(message)),
        }
    }

    fn store(&mut self, message: &Message) -> Position {
        let topic = self.topics.entry(message.topic.clone()).or_default();
        let offset = topic.len() as u64;
        topic.push(message.clone());
        self.arrivals.push(Arrival { topic: message.topic.clone(), offset, time: Timestamp::now() });
        Position { partition: 0, offset }
    }

    pub(super) fn published(&self) -> Vec<(Position, Message)> {
        let stored = self.arrivals.iter().filter_map(|Arrival { topic, offset, .. }| {
            let message = self.topics.get(topic)?.get(*offset as usize)?;
            Some((Position { partition: 0, offset: *offset }, message.clone()))
        });
        stored.collect()
    }

    pub(super) fn topics(&self) -> Vec<TopicInfo> {
        let topics = self.topics.iter().map(|(topic, messages)| TopicInfo {
            topic: topic.clone(),
            partitions: 1,
            messages: messages.len() as u64,
            bytes: Some(messages.iter().map(size).sum()),
        });
        topics.collect()
    }

    /// Returns the offset of the first message of `topic` that arrived at `time` or later, or the end.
    pub(super) fn offset_at(&self, topic: &TopicName, time: Timestamp) -> usize {
        let found = self.arrivals.iter().find(|arrival| arrival.topic == *topic && arrival.time >= time);
        found.map_or(self.messages(topic).len(), |arrival| arrival.offset as usize)
    }

    pub(super) fn messages(&self, topic: &TopicName) -> &[Message] {
        self.topics.get(topic).map_or(&[], Vec::as_slice)
    }

    pub(super) fn group(&mut self, topic: &TopicName, group: &GroupName) -> &mut Group {
        self.groups.entry((topic.clone(), group.clone())).or_default()
    }
}

/// The size of the message on the wire.
fn size(message: &Message) -> u64 {
    let headers: usize = wire::headers(message, "").iter().map(|(name, value)| name.len() + value.len()).sum();
    (headers + message.payload.len()) as u64
}
