//! Which messages of a batch may be on their way at once.
//!
//! Everything at once is fast and breaks the order of a key when the server turns one message down and takes the next.
//! That happens where something has yet to come about: nobody is bound to the topic yet, or a queue whose leader is
//! not elected yet (after a restart) refuses a channel's first message to it. What a channel has done once it can do
//! again: a binding stays, and a queue that knows the channel takes its messages in order or not at all. So a channel
//! sends the first message of a topic alone, then the first one of each slot, and from then on everything at once.
//!
//! A queue that may refuse messages when it is full keeps no such promise: it may have room again within a batch. Of a
//! topic with such queues one message of a key is on its way at a time ([`OneEach`]).

use std::collections::{HashMap, HashSet};

use landfall_core::{Key, Message, Outcome, TopicName};

use crate::names;

/// What was seen to work on one channel: topics, and the slots of each as bits.
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

    /// Something that had worked did not: be careful with this topic again.
    pub(crate) fn forget(&mut self, topic: &TopicName) {
        self.0.remove(topic);
    }
}

fn bit(message: &Message) -> u32 {
    1 << names::slot(message)
}

/// The topics of which a key's next message waits for the confirm of the one before.
#[derive(Debug, Clone, Default)]
pub(crate) struct OneEach {
    /// Whether they are all of them.
    pub(crate) always: bool,
    /// Those that turned down a message where one had been taken before.
    pub(crate) topics: HashSet<TopicName>,
}

impl OneEach {
    fn is_for(&self, topic: &TopicName) -> bool {
        self.always || self.topics.contains(topic)
    }
}

/// Takes out of `pending`, in order, what may be sent now.
pub(crate) fn next(batch: &[Message], pending: &mut Vec<usize>, proven: &Proven, one_each: &OneEach) -> Vec<usize> {
    let mut trying_key: HashSet<(&TopicName, &Key)> = HashSet::new();
    let mut trying_topic: HashSet<&TopicName> = HashSet::new();
    let mut trying_slot: HashSet<(&TopicName, u32)> = HashSet::new();
    let mut now = Vec::with_capacity(pending.len());
    pending.retain(|&place| {
        let message = &batch[place];
        let goes = if !proven.has_topic(&message.topic) {
            trying_topic.insert(&message.topic)
        } else if proven.has_slot(message) {
            match &message.key {
                Some(key) if one_each.is_for(&message.topic) => trying_key.insert((&message.topic, key)),
                _ => true,
            }
        } else {
            // Without a key there is no order to break, but a queue that is not there is not asked twice.
            trying_slot.insert((&message.topic, names::slot(message)))
        };
        if goes {
            now.push(place);
        }
        !goes
    });
    now
}

/// Settles what is still `pending` behind something that was tried in vain: the rest of that topic or slot would fare
/// no better, and the rest of that key must not.
pub(crate) fn settle_followers(
    batch: &[Message],
    pending: &mut Vec<usize>,
    outcomes: &mut [Option<Outcome>],
    tried: &[usize],
    proven: &Proven,
) {
    let failed: Vec<usize> = tried.iter().copied().filter(|place| !is_accepted(&outcomes[*place])).collect();
    if failed.is_empty() {
        return;
    }
    pending.retain(|&place| {
        let message = &batch[place];
        let before = failed.iter().find(|&&failed| {
            let failed = &batch[failed];
            let same_slot = names::slot(failed) == names::slot(message);
            failed.topic == message.topic && (!proven.has_topic(&message.topic) || same_slot)
        });
        let Some(before) = before else { return true };
        let same_key = message.key.is_some() && batch[*before].key == message.key;
        outcomes[place] = match &outcomes[*before] {
            Some(Outcome::Refused(refusal)) if refusal.retriable && !same_key => {
                Some(Outcome::retry_later(refusal.code.clone(), refusal.reason.clone()))
            }
            _ => Some(Outcome::behind_predecessor()),
        };
        false
    });
}

fn is_accepted(outcome: &Option<Outcome>) -> bool {
    outcome.as_ref().is_some_and(Outcome::is_accepted)
}

/// After a message that was not accepted, no later one of its key counts as accepted. One that the server took
/// nevertheless is sent again, as anything whose outcome is unknown.
pub(crate) fn keep_order(batch: &[Message], outcomes: &mut [Outcome]) {
    if outcomes.iter().all(Outcome::is_accepted) {
        return;
    }
    let mut failed = HashSet::new();
    for (message, outcome) in batch.iter().zip(outcomes) {
        let Some(key) = &message.key else { continue };
        if !outcome.is_accepted() {
            failed.insert((&message.topic, key));
        } else if failed.contains(&(&message.topic, key)) {
            *outcome = Outcome::Unknown("an earlier message of the same key was not accepted, and this one was".into());
        }
    }
}

#[cfg(test)]
mod tests {
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
        let mut pending: Vec<usize> = (0..5).collect();
        let everything = OneEach::default();
        let first = next(&batch, &mut pending, &proven, &everything);
        assert_eq!(first, [0, 4]);
        first.iter().for_each(|place| proven.prove(&batch[*place]));
        assert_eq!(next(&batch, &mut pending, &proven, &everything), [1, 2]);
        proven.prove(&batch[2]);
        assert_eq!(next(&batch, &mut pending, &proven, &everything), [3]);
        assert!(pending.is_empty());
        let mut pending: Vec<usize> = (0..5).collect();
        assert_eq!(next(&batch, &mut pending, &proven, &everything), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn of_a_topic_that_turns_messages_down_one_of_each_key_is_on_its_way() {
        let (batch, mut proven) = (batch(), Proven::default());
        batch.iter().for_each(|message| proven.prove(message));
        let topics = HashSet::from([TopicName::new("t").unwrap()]);
        for one_each in [OneEach { topics, always: false }, OneEach { always: true, ..OneEach::default() }] {
            let mut pending: Vec<usize> = (0..5).collect();
            assert_eq!(next(&batch, &mut pending, &proven, &one_each), [0, 2, 4]);
            assert_eq!(next(&batch, &mut pending, &proven, &one_each), [1, 3]);
        }
    }

    #[test]
    fn what_follows_a_refused_first_message_is_refused_alike_and_nothing_else_is() {
        let (batch, mut proven) = (batch(), Proven::default());
        proven.prove(&batch[0]);
        // The slot of b is tried and turned down.
        let mut outcomes = vec![None; 5];
        outcomes[2] = Some(Outcome::retry_later(ErrorCode::STORAGE_FULL, "full"));
        let mut pending = vec![1, 3, 4];
        settle_followers(&batch, &mut pending, &mut outcomes, &[2], &proven);
        assert_eq!(pending, [1, 4]);
        assert_eq!(outcomes[3], Some(Outcome::behind_predecessor()));

        // The topic itself is tried and turned down.
        let (mut pending, mut outcomes) = (vec![1, 2, 3, 4], vec![None; 5]);
        outcomes[0] = Some(Outcome::retry_later(ErrorCode::NO_CONSUMER, "nobody"));
        settle_followers(&batch, &mut pending, &mut outcomes, &[0], &Proven::default());
        assert_eq!(pending, [4]);
        assert_eq!(outcomes[1], Some(Outcome::behind_predecessor()));
        assert_eq!(outcomes[2], Some(Outcome::retry_later(ErrorCode::NO_CONSUMER, "nobody")));
    }

    #[test]
    fn what_was_taken_out_of_turn_is_not_called_accepted() {
        let batch = batch();
        let mut outcomes = vec![accepted(); 5];
        outcomes[0] = Outcome::retry_later(ErrorCode::STORAGE_FULL, "full");
        keep_order(&batch, &mut outcomes);
        assert!(matches!(outcomes[1], Outcome::Unknown(_)));
        assert!(outcomes[2..].iter().all(Outcome::is_accepted));
    }
}
