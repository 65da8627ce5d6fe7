//! What the broker holds: topics, groups, and the record of everything that arrived.

use std::collections::{BTreeMap, BTreeSet};

use landfall_core::{GroupName, Message, Outcome, Position, TopicInfo, TopicName, wire};

use super::fault::Faults;
use super::group::Group;

#[derive(Debug, Default)]
pub(super) struct State {
    topics: BTreeMap<TopicName, Vec<Message>>,
    /// Every stored message as its topic and offset, in the order of arrival over all topics.
    arrivals: Vec<(TopicName, u64)>,
    groups: BTreeMap<(TopicName, GroupName), Group>,
    pub(super) faults: Faults,
    pub(super) closed: bool,
}

impl State {
    pub(super) fn publish(&mut self, batch: &[Message]) -> Vec<Outcome> {
        // After one that was not accepted, its key is not accepted for the rest of the batch.
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
        match self.faults.meet(message) {
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
        self.arrivals.push((message.topic.clone(), offset));
        Position { partition: 0, offset }
    }

    pub(super) fn published(&self) -> Vec<(Position, Message)> {
        let stored = self.arrivals.iter().filter_map(|(topic, offset)| {
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
            bytes: messages.iter().map(size).sum(),
        });
        topics.collect()
    }

    pub(super) fn messages(&self, topic: &TopicName) -> &[Message] {
        self.topics.get(topic).map_or(&[], Vec::as_slice)
    }

    pub(super) fn group(&mut self, topic: &TopicName, group: &GroupName) -> &mut Group {
        self.groups.entry((topic.clone(), group.clone())).or_default()
    }
}

/// What the message would take on a wire.
fn size(message: &Message) -> u64 {
    let headers: usize = wire::headers(message, "").iter().map(|(name, value)| name.len() + value.len()).sum();
    (headers + message.payload.len()) as u64
}
