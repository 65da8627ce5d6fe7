//! What the log has promised: the reference that every image is compared with.
//!
//! The test writes into the disk's journal what it asks for and what it is told ([`Mark`]). Read up to some moment,
//! the marks say what must be found if everything stops at that moment, and what may be.

use std::collections::BTreeMap;

use landfall_core::{GroupName, Message, Outcome, TopicName};

/// What stands in the topics: the messages of each partition, by offset.
pub(crate) type Content = BTreeMap<TopicName, Vec<Vec<Message>>>;

/// What the log was asked for and what it answered.
#[derive(Debug, Clone)]
pub(crate) enum Mark {
    /// A call begins.
    Publishing(Vec<Message>),
    /// The same call has returned.
    Published(Vec<Outcome>),
    /// The log was opened and all of this was read from it: from now on it must not go away.
    Seen(Content),
    /// A group begins to acknowledge what stands before these offsets.
    Acknowledging(GroupName, TopicName, Vec<u64>),
    /// That is durable now.
    Acknowledged(GroupName, TopicName, Vec<u64>),
}

/// How far a group has come, by partition.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    /// It resumes here or later.
    pub(crate) saved: Vec<u64>,
    /// It resumes here or earlier.
    pub(crate) acknowledged: Vec<u64>,
}

/// Messages that may be there or not.
#[derive(Debug, Clone)]
struct Call {
    messages: Vec<Message>,
    /// What will be answered, where that is known.
    outcomes: Option<Vec<Outcome>>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Reference {
    stored: Content,
    call: Option<Call>,
    groups: BTreeMap<(GroupName, TopicName), Progress>,
}

impl Mark {
    pub(crate) fn outline(&self) -> String {
        let count = |content: &Content| content.values().flatten().map(Vec::len).sum::<usize>();
        match self {
            Mark::Publishing(messages) => format!("publishing {} messages", messages.len()),
            Mark::Published(outcomes) => {
                let accepted = outcomes.iter().filter(|outcome| outcome.is_accepted()).count();
                format!("published {accepted} of {}", outcomes.len())
            }
            Mark::Seen(content) => format!("seen {} messages", count(content)),
            Mark::Acknowledging(group, topic, offsets) => format!("{group} acknowledges {topic} {offsets:?}"),
            Mark::Acknowledged(group, topic, offsets) => format!("{group} has acknowledged {topic} {offsets:?}"),
        }
    }
}

impl Reference {
    /// Takes in the next mark. Of a call that begins, `answer` says what will be answered, if that is known.
    pub(crate) fn follow(&mut self, mark: &Mark, answer: Option<&[Outcome]>) -> Result<(), String> {
        match mark {
            Mark::Publishing(messages) => {
                self.call = Some(Call { messages: messages.clone(), outcomes: answer.map(<[Outcome]>::to_vec) });
            }
            Mark::Published(outcomes) => self.published(outcomes)?,
            Mark::Seen(content) => {
                self.stored = content.clone();
                self.call = None;
            }
            Mark::Acknowledging(group, topic, offsets) => {
                let progress = self.groups.entry((group.clone(), topic.clone())).or_default();
                raise(&mut progress.acknowledged, offsets);
            }
            Mark::Acknowledged(group, topic, offsets) => {
                let progress = self.groups.entry((group.clone(), topic.clone())).or_default();
                raise(&mut progress.saved, offsets);
            }
        }
        Ok(())
    }

    fn published(&mut self, outcomes: &[Outcome]) -> Result<(), String> {
        let Some(mut call) = self.call.take() else { return Err("an answer without a call".into()) };
        if outcomes.len() != call.messages.len() {
            return Err(format!("{} outcomes for {} messages", outcomes.len(), call.messages.len()));
        }
        for (message, outcome) in call.messages.iter().zip(outcomes) {
            let Outcome::Accepted(position) = outcome else { continue };
            let partitions = self.stored.entry(message.topic.clone()).or_default();
            let number = position.partition as usize;
            if partitions.len() <= number {
                partitions.resize(number + 1, Vec::new());
            }
            let expected = partitions[number].len() as u64;
            if position.offset != expected {
                return Err(format!("{} was accepted at {position:?}, and {expected} was next", message.id));
            }
            partitions[number].push(message.clone());
        }
        if outcomes.iter().any(|outcome| matches!(outcome, Outcome::Unknown(_))) {
            call.outcomes = Some(outcomes.to_vec());
            self.call = Some(call);
        }
        Ok(())
    }

    pub(crate) fn stored(&self) -> &Content {
        &self.stored
    }

    pub(crate) fn groups(&self) -> &BTreeMap<(GroupName, TopicName), Progress> {
        &self.groups
    }

    /// Whether `found` is everything that was promised, and nothing that was never asked for.
    pub(crate) fn compare(&self, found: &Content) -> Result<(), String> {
        for (topic, partitions) in &self.stored {
            for (number, stored) in partitions.iter().enumerate() {
                let found = found.get(topic).and_then(|partitions| partitions.get(number));
                let found = found.map(Vec::as_slice).unwrap_or_default();
                let same = stored.iter().zip(found).take_while(|(stored, found)| stored == found).count();
                if same < stored.len().min(found.len()) {
                    return Err(format!("{topic}/{number}: another message stands at offset {same}"));
                }
                if same < stored.len() {
                    return Err(format!("{topic}/{number}: acknowledged messages are missing from offset {same} on"));
                }
            }
        }
        for (topic, partitions) in found {
            for (number, found) in partitions.iter().enumerate() {
                let stored = self.stored.get(topic).and_then(|partitions| partitions.get(number));
                let stored = stored.map_or(0, Vec::len);
                self.check_tail(topic, partitions.len(), number, stored, &found[stored..])?;
            }
        }
        Ok(())
    }

    /// What stands behind the acknowledged messages must be the beginning of what was on its way to that place.
    fn check_tail(
        &self,
        topic: &TopicName,
        partitions: usize,
        number: usize,
        stored: usize,
        tail: &[Message],
    ) -> Result<(), String> {
        let (mut expected, mut is_certain) = (Vec::new(), true);
        for (index, message) in self.call.iter().flat_map(|call| call.messages.iter().enumerate()) {
            let outcome = self.call.as_ref().and_then(|call| call.outcomes.as_ref()?.get(index));
            let belongs = message.topic == *topic
                && match (outcome, &message.key) {
                    (Some(Outcome::Refused(_)), _) => false,
                    (Some(Outcome::Accepted(position)), _) => {
                        position.partition as usize == number && position.offset >= stored as u64
                    }
                    (_, Some(key)) => key.partition(partitions as u32) as usize == number,
                    (_, None) => {
                        is_certain = false;
                        true
                    }
                };
            if belongs {
                expected.push(message);
            }
        }
        let mut rest = expected.iter();
        let is_in_order = tail.iter().all(|found| rest.by_ref().any(|expected| *expected == found));
        let has_no_gap = tail.iter().zip(&expected).all(|(found, expected)| *expected == found);
        match is_in_order && (has_no_gap || !is_certain) {
            true => Ok(()),
            false => Err(format!(
                "{topic}/{number}: behind offset {stored} stand {} messages that are not the beginning of the call \
                 that was on its way",
                tail.len()
            )),
        }
    }
}

/// Makes each offset at least as high as the one in `by`.
fn raise(offsets: &mut Vec<u64>, by: &[u64]) {
    offsets.resize(offsets.len().max(by.len()), 0);
    offsets.iter_mut().zip(by).for_each(|(offset, by)| *offset = (*offset).max(*by));
}
