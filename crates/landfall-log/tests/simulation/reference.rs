//! The reference model: what the log has promised. Every image is compared with it.
//!
//! It applies the events of the disk's journal. Applied up to some point, they determine what must be found after a
//! crash at that point, and what may be found.

use std::collections::BTreeMap;

use landfall_core::{ErrorCode, GroupName, Message, Outcome, Position, ProducerName, Refusal, TopicName};
use landfall_log::{Acknowledge, Options, TopicSettings};

use crate::content::Content;
use crate::events::{Call, CallResult, Event};
use crate::promise::{InProgress, Partition, Topic};

/// The progress of a group, by partition.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    /// The group resumes here or later.
    pub(crate) saved: Vec<u64>,
    /// The group resumes here or earlier.
    pub(crate) acknowledged: Vec<u64>,
    /// The log remembers the group after any crash.
    is_durable: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Reference {
    topics: BTreeMap<TopicName, Topic>,
    groups: BTreeMap<(GroupName, TopicName), Progress>,
    producers: BTreeMap<ProducerName, (u64, u16)>,
    /// A call that may or may not have happened, and its outcomes if they are known.
    call: Option<(Call, Option<Vec<Outcome>>)>,
    /// Partitions and settings of a topic that its first message creates.
    auto_created: (u32, TopicSettings),
    /// Whether an accepted message is durable.
    is_synced: bool,
}

impl Reference {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            topics: BTreeMap::new(),
            groups: BTreeMap::new(),
            producers: BTreeMap::new(),
            call: None,
            auto_created: (options.partitions, options.topic),
            is_synced: options.acknowledge == Acknowledge::Synced,
        }
    }

    /// Applies the next event. For a call that starts, `outcomes` are its later outcomes, if known.
    pub(crate) fn apply(&mut self, event: &Event, outcomes: Option<&[Outcome]>) -> Result<(), String> {
        match event {
            Event::CallStarted(call) => self.call = Some((call.clone(), outcomes.map(<[Outcome]>::to_vec))),
            Event::CallReturned(result) => self.call_returned(result)?,
            Event::Seen(content) => self.seen(content),
            Event::Read(content) => self.read(content),
            Event::Closed => self.for_each_partition(|partition| partition.durable = partition.end()),
            Event::Registered(name, id, epoch) => self.registered(name, *id, *epoch)?,
            Event::Acknowledging(group, topic, offsets) => {
                raise(&mut self.progress_mut(group, topic).acknowledged, offsets);
            }
            Event::Acknowledged(group, topic, offsets) => {
                let progress = self.progress_mut(group, topic);
                raise(&mut progress.saved, offsets);
                progress.is_durable = true;
            }
            Event::Seeking(group, topic, offsets) => {
                let progress = self.progress_mut(group, topic);
                raise(&mut progress.acknowledged, offsets);
                progress.saved.resize(offsets.len(), 0);
                progress.saved.iter_mut().zip(offsets).for_each(|(saved, to)| *saved = (*saved).min(*to));
            }
            Event::SeekCompleted(group, topic, offsets) => {
                let (saved, acknowledged) = (offsets.clone(), offsets.clone());
                *self.progress_mut(group, topic) = Progress { saved, acknowledged, is_durable: true };
            }
        }
        Ok(())
    }

    fn call_returned(&mut self, result: &CallResult) -> Result<(), String> {
        let Some((call, _)) = self.call.take() else { return Err("a result without a call".into()) };
        match (&call, result) {
            (_, CallResult::Failed) => self.call = Some((call, None)),
            (_, CallResult::Remaining(content)) => self.read(content),
            (Call::Publish(messages), CallResult::Outcomes(outcomes)) => {
                self.published(messages, outcomes)?;
                if outcomes.iter().any(is_undetermined) {
                    self.call = Some((call, Some(outcomes.clone())));
                }
            }
            (Call::Produce { .. }, CallResult::Outcomes(outcomes)) => {
                self.produced(&call, outcomes)?;
                if outcomes.iter().any(is_undetermined) {
                    self.call = Some((call, None));
                }
            }
            _ => {
                self.topics = self.after(&call);
                if let Call::Delete(topic) = &call {
                    self.groups.retain(|(_, of), _| of != topic);
                }
            }
        }
        if self.is_synced {
            self.for_each_partition(|partition| partition.durable = partition.end());
        }
        Ok(())
    }

    /// The topics after `call`, which changes one of them.
    fn after(&self, call: &Call) -> BTreeMap<TopicName, Topic> {
        let mut topics = self.topics.clone();
        match call {
            Call::Create(topic, partitions, settings) => {
                topics.entry(topic.clone()).or_insert_with(|| Topic::new(*partitions, *settings));
            }
            Call::Grow(topic, partitions) => {
                if let Some(topic) = topics.get_mut(topic) {
                    topic.partitions.resize(*partitions as usize, Partition::default());
                }
            }
            Call::Configure(topic, settings) => {
                if let Some(topic) = topics.get_mut(topic) {
                    topic.settings = *settings;
                }
            }
            Call::Delete(topic) => drop(topics.remove(topic)),
            Call::Publish(_) | Call::Produce { .. } | Call::Maintain => {}
        }
        topics
    }

    fn published(&mut self, messages: &[Message], outcomes: &[Outcome]) -> Result<(), String> {
        if outcomes.len() != messages.len() {
            return Err(format!("{} outcomes for {} messages", outcomes.len(), messages.len()));
        }
        let (partitions, settings) = self.auto_created;
        for (message, outcome) in messages.iter().zip(outcomes) {
            // An oversized message also creates its topic, because its size is checked later.
            let is_too_large = |refusal: &Refusal| refusal.code == ErrorCode::TOO_LARGE;
            if !matches!(outcome, Outcome::Refused(refusal) if is_too_large(refusal)) && !outcome.is_accepted() {
                continue;
            }
            let topic = self.topics.entry(message.topic.clone()).or_insert_with(|| Topic::new(partitions, settings));
            let Outcome::Accepted(position) = outcome else { continue };
            let known = topic.duplicate(message.id);
            let count = topic.partitions.len() as u32;
            let Some(partition) = topic.partitions.get_mut(position.partition as usize) else {
                return Err(format!("{} was accepted at {position:?} of {count} partitions", message.id));
            };
            let expected = known.unwrap_or(Position { offset: partition.end(), ..*position });
            if *position != expected {
                return Err(format!("{} was accepted at {position:?}; expected {expected:?}", message.id));
            }
            if known.is_none() {
                if message.key.as_ref().is_some_and(|key| key.partition(count) != position.partition) {
                    return Err(format!("{} is in partition {}, not its key's", message.id, position.partition));
                }
                partition.messages.push(message.clone());
            }
        }
        Ok(())
    }

    fn produced(&mut self, call: &Call, outcomes: &[Outcome]) -> Result<(), String> {
        let Call::Produce { producer, topic, partition, first, messages } = call else { return Ok(()) };
        let number = *partition;
        let partition = self.topics.get_mut(topic).and_then(|topic| topic.partitions.get_mut(number as usize));
        let partition = partition.ok_or_else(|| format!("{topic}/{number} accepted messages but does not exist"))?;
        for ((sequence, message), outcome) in (*first..).zip(messages).zip(outcomes) {
            let Outcome::Accepted(position) = outcome else { continue };
            let offsets = partition.sequences.entry(producer.clone()).or_default();
            let expected = match offsets.get(sequence as usize) {
                // Of messages removed by retention the log only knows that they existed.
                Some(offset) => partition.start.max(*offset),
                None => {
                    offsets.push(partition.messages.len() as u64);
                    partition.messages.push(message.clone());
                    partition.messages.len() as u64 - 1
                }
            };
            if *position != (Position { partition: number, offset: expected }) {
                return Err(format!("sequence {sequence} of {producer} is at {position:?}; expected {expected}"));
            }
        }
        Ok(())
    }

    fn registered(&mut self, name: &ProducerName, id: u64, epoch: u16) -> Result<(), String> {
        match self.producers.insert(name.clone(), (id, epoch)) {
            Some(before) if id != before.0 || epoch <= before.1 => {
                Err(format!("{name} was registered as {before:?} and is now ({id}, {epoch})"))
            }
            None if self.producers.values().filter(|(other, _)| *other == id).count() > 1 => {
                Err(format!("{name} has the id {id} of another producer"))
            }
            _ => Ok(()),
        }
    }

    /// The log was opened and has this content.
    fn seen(&mut self, content: &Content) {
        let call = self.call.take();
        self.topics.retain(|name, _| content.contains_key(name));
        self.groups.retain(|(_, topic), _| content.contains_key(topic));
        for (name, found) in content {
            let topic = self.topics.entry(name.clone()).or_insert_with(|| Topic::new(0, found.settings));
            topic.adopt(found);
        }
        if let Some((Call::Produce { producer, topic, partition, first, messages }, _)) = call
            && let Some(topic) = self.topics.get_mut(&topic)
        {
            for (sequence, message) in (first..).zip(messages) {
                let position = topic.find(message.id);
                let offsets = topic.partitions[partition as usize].sequences.entry(producer.clone()).or_default();
                if let (Some(position), true) = (position, sequence == offsets.len() as u64) {
                    offsets.push(position.offset);
                }
            }
        }
    }

    /// Content that was read is durable; missing messages may be unsynced.
    fn read(&mut self, content: &Content) {
        for (name, found) in content {
            let Some(topic) = self.topics.get_mut(name) else { continue };
            for (partition, found) in topic.partitions.iter_mut().zip(&found.partitions) {
                partition.read(found);
            }
        }
    }

    /// A process that was only killed leaves everything that it had written.
    pub(crate) fn keep_written(&mut self) {
        self.for_each_partition(|partition| partition.durable = partition.end());
    }

    fn for_each_partition(&mut self, each: impl FnMut(&mut Partition)) {
        self.topics.values_mut().flat_map(|topic| &mut topic.partitions).for_each(each);
    }

    /// Whether accepted messages are durable and visible to readers.
    pub(crate) fn is_synced(&self) -> bool {
        self.is_synced
    }

    pub(crate) fn topics(&self) -> &BTreeMap<TopicName, Topic> {
        &self.topics
    }

    pub(crate) fn groups(&self) -> &BTreeMap<(GroupName, TopicName), Progress> {
        &self.groups
    }

    pub(crate) fn producers(&self) -> impl Iterator<Item = &ProducerName> {
        self.producers.keys()
    }

    pub(crate) fn call(&self) -> Option<&Call> {
        self.call.as_ref().map(|(call, _)| call)
    }

    pub(crate) fn progress(&self, group: &GroupName, topic: &TopicName) -> Progress {
        self.groups.get(&(group.clone(), topic.clone())).cloned().unwrap_or_default()
    }

    fn progress_mut(&mut self, group: &GroupName, topic: &TopicName) -> &mut Progress {
        self.groups.entry((group.clone(), topic.clone())).or_default()
    }

    /// Checks that `found` has everything that was promised, and nothing that was never requested.
    pub(crate) fn compare(&self, found: &Content) -> Result<(), String> {
        let before = self.compare_topics(&self.topics, found);
        match (&before, self.call()) {
            // An interrupted change to a topic happened completely or not at all.
            (Err(_), Some(Call::Create(..) | Call::Grow(..) | Call::Configure(..) | Call::Delete(_))) => {
                let after = self.call().map(|call| self.after(call)).unwrap_or_default();
                self.compare_topics(&after, found).or(before)
            }
            _ => before,
        }
    }

    fn compare_topics(&self, topics: &BTreeMap<TopicName, Topic>, found: &Content) -> Result<(), String> {
        if let Some(name) = topics.keys().find(|name| !found.contains_key(*name)) {
            return Err(format!("topic {name} is missing"));
        }
        let (partitions, settings) = self.auto_created;
        let created = Topic::new(partitions, settings);
        let may_be_created = |name: &TopicName| match self.call() {
            Some(Call::Publish(messages)) => messages.iter().any(|message| message.topic == *name),
            _ => false,
        };
        for (name, found) in found {
            let topic = topics.get(name).or_else(|| may_be_created(name).then_some(&created));
            let topic = topic.ok_or_else(|| format!("topic {name} exists but was never created"))?;
            if topic.settings != found.settings || topic.partitions.len() != found.partitions.len() {
                let found = (found.partitions.len(), found.settings);
                return Err(format!("{name} has {found:?}; expected {:?}", (topic.partitions.len(), topic.settings)));
            }
            for (number, (partition, found)) in topic.partitions.iter().zip(&found.partitions).enumerate() {
                let compared = partition.compare(found, &self.in_progress(name, topic, number));
                compared.map_err(|why| format!("{name}/{number}: {why}"))?;
            }
        }
        Ok(())
    }

    /// The effect that the interrupted call may have had on one partition.
    fn in_progress<'a>(&'a self, name: &TopicName, topic: &Topic, number: usize) -> InProgress<'a> {
        let mut in_progress = InProgress::default();
        match &self.call {
            Some((Call::Publish(messages), outcomes)) => {
                for (index, message) in messages.iter().enumerate().filter(|(_, message)| message.topic == *name) {
                    let outcome = outcomes.as_ref().and_then(|outcomes| outcomes.get(index));
                    let is_known = topic.duplicate(message.id).is_some()
                        || topic.settings.deduplicate
                            && in_progress.messages.iter().any(|known| known.id == message.id);
                    let belongs = match (outcome, &message.key) {
                        (Some(Outcome::Refused(_)), _) => false,
                        (Some(Outcome::Accepted(position)), _) => {
                            position.partition as usize == number && position.offset >= topic.partitions[number].end()
                        }
                        (_, Some(key)) => key.partition(topic.partitions.len() as u32) as usize == number,
                        (_, None) => {
                            in_progress.is_uncertain = true;
                            true
                        }
                    };
                    if belongs && !is_known {
                        in_progress.messages.push(message);
                    }
                }
            }
            Some((Call::Produce { producer, topic: of, partition, first, messages }, _))
                if of == name && *partition as usize == number =>
            {
                let next = topic.partitions[number].sequences.get(producer).map_or(0, Vec::len) as u64;
                in_progress.messages = messages.iter().skip(next.saturating_sub(*first) as usize).collect();
                in_progress.is_atomic = true;
            }
            Some((Call::Maintain, _)) => {
                let (needed, partition) = (self.needed(name, topic, number), &topic.partitions[number]);
                let may_retain = topic.settings.retention_bytes.is_some();
                let may_drop = if topic.settings.may_drop_unread { partition.end() } else { needed };
                in_progress.may_start_at = if may_retain { may_drop } else { partition.start };
                in_progress.may_compact_below = if topic.settings.compact { needed } else { 0 };
            }
            _ => {}
        }
        in_progress
    }

    /// The first offset that some group has not finished; the end if there is none.
    fn needed(&self, name: &TopicName, topic: &Topic, number: usize) -> u64 {
        let partition = &topic.partitions[number];
        let known = self.groups.iter().filter(|((_, of), progress)| of == name && progress.is_durable);
        let needed = known.map(|(_, progress)| {
            let acknowledged = progress.acknowledged.get(number).copied().unwrap_or_default();
            partition.next_from(acknowledged.max(partition.start), partition.end())
        });
        needed.min().unwrap_or(partition.end())
    }
}

/// Whether the effect is unknown: the message may be stored, or its topic may have been created.
fn is_undetermined(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Unknown(_) => true,
        Outcome::Refused(refusal) => refusal.code == ErrorCode::UNAVAILABLE,
        Outcome::Accepted(_) => false,
    }
}

/// Raises each offset to at least the one in `by`.
fn raise(offsets: &mut Vec<u64>, by: &[u64]) {
    offsets.resize(offsets.len().max(by.len()), 0);
    offsets.iter_mut().zip(by).for_each(|(offset, by)| *offset = (*offset).max(*by));
}
