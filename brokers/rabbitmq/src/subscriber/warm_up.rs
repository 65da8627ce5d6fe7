//! How a new channel begins to publish.
//!
//! Publishing everything at once is fast, and breaks the order of a key if the server refuses one message and accepts
//! the next. There are only two such moments. At the start, no group is bound to the topic yet. After a restart, a
//! queue without an elected leader refuses a channel's first message. Neither happens again on the same channel:
//! bindings stay, and a queue that knows the channel accepts its messages in order or not at all. So a channel sends
//! the first message of a topic alone, then the first one of each slot, and from then on everything at once.
//!
//! A queue that refuses messages when it is full gives no such guarantee: it may have room again within a batch. For
//! topics with such queues one message of a key is in flight at a time ([`OnePerKey`]).

use std::collections::{HashMap, HashSet};

use landfall_broker_toolkit::KeySequencer;
use landfall_core::{Key, Message, Outcome, TopicName};

use crate::names;

/// The topics that accepted a message on one channel, and the slots of each as bits.
#[derive(Debug, Default)]
pub(crate) struct Proven(HashMap<TopicName, u32>);

impl Proven {
    pub(crate) fn has_topic(&self, topic: &TopicName) -> bool {
        self.0.contains_key(topic)
    }

    pub(crate) fn has_slot(&self, message: &Message) -> bool {
        self.0.get(&message.topic).is_some_and(|slots| slots & bit(message) != 0)
    }

    pub(crate) fn prove(&mut self, message: &Message) {
        match self.0.get_mut(&message.topic) {
            Some(slots) => *slots |= bit(message),
            None => drop(self.0.insert(message.topic.clone(), bit(message))),
        }
    }

    /// Starts over with a topic that refused a message.
    pub(crate) fn forget(&mut self, topic: &TopicName) {
        self.0.remove(topic);
    }
}

fn bit(message: &Message) -> u32 {
    1 << names::slot(message)
}

/// The topics for which the next message of a key waits for the confirm of the one before.
#[derive(Debug, Clone, Default)]
pub(crate) struct OnePerKey {
    /// All topics.
    pub(crate) always: bool,
    /// Topics that refused a message after they had accepted one on the same channel and slot.
    pub(crate) topics: HashSet<TopicName>,
}

impl OnePerKey {
    fn applies_to(&self, topic: &TopicName) -> bool {
        self.always || self.topics.contains(topic)
    }
}

/// Hands out what may be sent next on a channel that has `proven` what it can do.
pub(crate) fn next_round(sequencer: &mut KeySequencer<'_>, proven: &Proven, one_per_key: &OnePerKey) -> Vec<usize> {
    let mut keys: HashSet<(&TopicName, &Key)> = HashSet::new();
    let mut topics: HashSet<&TopicName> = HashSet::new();
    let mut slots: HashSet<(&TopicName, u32)> = HashSet::new();
    sequencer.take_ready(|message| {
        if !proven.has_topic(&message.topic) {
            topics.insert(&message.topic)
        } else if proven.has_slot(message) {
            match &message.key {
                Some(key) if one_per_key.applies_to(&message.topic) => keys.insert((&message.topic, key)),
                _ => true,
            }
        } else {
            // Messages without a key have no order, but a queue that may be absent is tried once.
            slots.insert((&message.topic, names::slot(message)))
        }
    })
}

/// Refuses unsent messages that would fare no better than one of `failed`: those of the same slot, or of the same topic
/// while that is not proven.
pub(crate) fn refuse_followers(sequencer: &mut KeySequencer<'_>, failed: &[(&Message, Outcome)], proven: &Proven) {
    if failed.is_empty() {
        return;
    }
    sequencer.refuse_unsent(|message| {
        let is_alike = |failed: &Message| {
            let same_slot = names::slot(failed) == names::slot(message);
            failed.topic == message.topic && (!proven.has_topic(&message.topic) || same_slot)
        };
        let (_, outcome) = failed.iter().find(|(failed, _)| is_alike(failed))?;
        Some(match outcome {
            Outcome::Refused(refusal) if refusal.retriable => {
                Outcome::retry_later(refusal.code.clone(), refusal.reason.clone())
            }
            _ => Outcome::behind_predecessor(),
        })
    });
}

#[cfg(test)]
mod tests {
    use landfall_broker_toolkit::Pipelining;
    use landfall_core::{ErrorCode, Key, Position};

    use super::*;

    fn message(topic: &str, key: &str) -> Message {
        Message::new(TopicName::new(topic).unwrap(), "x").with_key(Key::new(key).unwrap())
    }

    fn accepted() -> Outcome {
        Outcome::Accepted(Position { partition: 0, offset: 0 })
    }

    /// Keys in two different slots.
    fn batch() -> Vec<Message> {
        let batch = vec![message("t", "a"), message("t", "a"), message("t", "b"), message("t", "b"), message("u", "a")];
        assert_ne!(names::slot(&batch[0]), names::slot(&batch[2]));
        batch
    }

    #[test]
    fn a_new_channel_tries_a_topic_then_its_slots_then_everything() {
        let (batch, mut proven) = (batch(), Proven::default());
        let mut sequencer = KeySequencer::new(&batch, Pipelining::InOrder);
        let pipelined = OnePerKey::default();
        let first = next_round(&mut sequencer, &proven, &pipelined);
        assert_eq!(first, [0, 4]);
        first.iter().for_each(|index| proven.prove(&batch[*index]));
        assert_eq!(next_round(&mut sequencer, &proven, &pipelined), [1, 2]);
        proven.prove(&batch[2]);
        assert_eq!(next_round(&mut sequencer, &proven, &pipelined), [3]);
        assert_eq!(next_round(&mut sequencer, &proven, &pipelined), [0; 0]);
        let mut sequencer = KeySequencer::new(&batch, Pipelining::InOrder);
        assert_eq!(next_round(&mut sequencer, &proven, &pipelined), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_topic_that_refused_messages_has_one_of_each_key_in_flight() {
        let (batch, mut proven) = (batch(), Proven::default());
        batch.iter().for_each(|message| proven.prove(message));
        let topics = HashSet::from([TopicName::new("t").unwrap()]);
        for one_per_key in [OnePerKey { topics, always: false }, OnePerKey { always: true, ..OnePerKey::default() }] {
            let mut sequencer = KeySequencer::new(&batch, Pipelining::InOrder);
            let first = next_round(&mut sequencer, &proven, &one_per_key);
            assert_eq!(first, [0, 2, 4]);
            first.into_iter().for_each(|index| sequencer.settle(index, accepted()));
            assert_eq!(next_round(&mut sequencer, &proven, &one_per_key), [1, 3]);
        }
    }

    #[test]
    fn followers_of_a_refused_first_message_are_refused_alike() {
        let (batch, mut proven) = (batch(), Proven::default());
        proven.prove(&batch[0]);
        // The slot of b refuses its first message.
        let mut sequencer = KeySequencer::new(&batch, Pipelining::InOrder);
        let full = Outcome::retry_later(ErrorCode::STORAGE_FULL, "full");
        sequencer.take_ready(|message| message.id == batch[2].id);
        sequencer.settle(2, full.clone());
        refuse_followers(&mut sequencer, &[(&batch[2], full)], &proven);
        assert_eq!(sequencer.take_ready(|_| true), [0, 1, 4]);
        assert_eq!(sequencer.into_outcomes()[3], Outcome::behind_predecessor());

        // The topic itself refuses its first message.
        let mut sequencer = KeySequencer::new(&batch, Pipelining::InOrder);
        let unbound = Outcome::retry_later(ErrorCode::NO_CONSUMER, "no group");
        assert_eq!(next_round(&mut sequencer, &Proven::default(), &OnePerKey::default()), [0, 4]);
        sequencer.settle(0, unbound.clone());
        refuse_followers(&mut sequencer, &[(&batch[0], unbound.clone())], &Proven::default());
        let outcomes = sequencer.into_outcomes();
        assert_eq!(outcomes[1], Outcome::behind_predecessor());
        assert_eq!(outcomes[2], unbound);
    }
}
