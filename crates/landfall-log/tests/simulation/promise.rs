//! What the log has promised about one partition, and about a topic.

use std::collections::{BTreeMap, BTreeSet};

use landfall_core::{Message, MessageId, Position, ProducerName};
use landfall_log::TopicSettings;

use crate::content::{FoundPartition, FoundTopic};

#[derive(Debug, Clone)]
pub(crate) struct Topic {
    pub(crate) settings: TopicSettings,
    pub(crate) partitions: Vec<Partition>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Partition {
    /// Everything that was ever accepted, by offset, also what was removed since.
    pub(crate) messages: Vec<Message>,
    /// Everything below survives a power cut.
    pub(crate) durable: u64,
    /// Where it begins.
    pub(crate) start: u64,
    /// What compaction removed. It never comes back.
    removed: BTreeSet<u64>,
    /// The offset of each message of an idempotent producer, by its number.
    pub(crate) sequences: BTreeMap<ProducerName, Vec<u64>>,
}

/// What was under way when everything stopped, as far as it concerns one partition.
#[derive(Debug, Default)]
pub(crate) struct UnderWay<'a> {
    /// New messages on their way to it, in order.
    pub(crate) messages: Vec<&'a Message>,
    /// They may be meant for another partition, each of them.
    pub(crate) is_uncertain: bool,
    /// They are stored together or not at all.
    pub(crate) is_whole: bool,
    /// Retention may have removed everything below.
    pub(crate) may_begin_at: u64,
    /// Compaction may have removed messages below.
    pub(crate) may_compact_below: u64,
}

impl Topic {
    pub(crate) fn new(partitions: u32, settings: TopicSettings) -> Self {
        Self { settings, partitions: vec![Partition::default(); partitions as usize] }
    }

    /// Where the message with this id stands.
    pub(crate) fn find(&self, id: MessageId) -> Option<Position> {
        let in_partition = |(number, partition): (usize, &Partition)| {
            let kept = partition.messages.iter().enumerate().skip(partition.start as usize);
            let offset = kept.into_iter().find(|(_, message)| message.id == id)?.0 as u64;
            Some(Position { partition: number as u32, offset })
        };
        self.partitions.iter().enumerate().find_map(in_partition)
    }

    /// Where a message that is published again is found instead of being stored.
    pub(crate) fn duplicate(&self, id: MessageId) -> Option<Position> {
        if self.settings.deduplicate { self.find(id) } else { None }
    }

    /// From now on it is exactly what was found.
    pub(crate) fn adopt(&mut self, found: &FoundTopic) {
        self.settings = found.settings;
        self.partitions.resize(found.partitions.len(), Partition::default());
        self.partitions.iter_mut().zip(&found.partitions).for_each(|(partition, found)| partition.adopt(found));
    }
}

impl Partition {
    pub(crate) fn end(&self) -> u64 {
        self.messages.len() as u64
    }

    /// The message at `offset`, if it is still there.
    pub(crate) fn get(&self, offset: u64) -> Option<&Message> {
        let is_there = offset >= self.start && !self.removed.contains(&offset);
        self.messages.get(offset as usize).filter(|_| is_there)
    }

    /// The first offset from `offset` on that holds a message below `end`; `end` if there is none.
    pub(crate) fn next_from(&self, offset: u64, end: u64) -> u64 {
        (offset..end).find(|offset| self.get(*offset).is_some()).unwrap_or(end)
    }

    /// Whether `found` is everything that was promised, and nothing that was never asked for.
    pub(crate) fn compare(&self, found: &FoundPartition, under_way: &UnderWay<'_>) -> Result<(), String> {
        let latest = self.start.max(under_way.may_begin_at);
        if !(self.start..=latest).contains(&found.start) {
            let start = self.start;
            return Err(format!("it begins at offset {}, and {start} to {latest} is right", found.start));
        }
        if found.end < self.durable {
            return Err(format!("acknowledged messages are missing from offset {} on", found.end));
        }
        for offset in found.start..found.end.min(self.end()) {
            let stored = &self.messages[offset as usize];
            match found.messages.get(&offset) {
                Some(message) if message != stored => return Err(format!("another message stands at offset {offset}")),
                Some(_) if self.removed.contains(&offset) => {
                    return Err(format!("the message at offset {offset} was removed, and is back"));
                }
                Some(_) => {}
                None if self.removed.contains(&offset) => {}
                None if offset < under_way.may_compact_below && self.is_superseded(offset, found.end) => {}
                None => return Err(format!("the acknowledged message at offset {offset} is missing")),
            }
        }
        self.compare_tail(found, under_way)
    }

    /// Whether a later message below `end` has the same key.
    fn is_superseded(&self, offset: u64, end: u64) -> bool {
        let later = &self.messages[offset as usize + 1..end.min(self.end()) as usize];
        let key = &self.messages[offset as usize].key;
        key.is_some() && later.iter().any(|message| message.key == *key)
    }

    /// What stands behind the acknowledged messages must be the beginning of what was on its way to that place.
    fn compare_tail(&self, found: &FoundPartition, under_way: &UnderWay<'_>) -> Result<(), String> {
        let tail: Vec<&Message> = found.messages.range(self.end()..).map(|(_, message)| message).collect();
        let expected = &under_way.messages;
        let mut rest = expected.iter();
        let is_in_order = tail.iter().all(|found| rest.by_ref().any(|expected| expected == found));
        let has_no_gap = tail.iter().zip(expected).all(|(found, expected)| expected == found);
        let is_whole = tail.is_empty() || tail.len() == expected.len() || !under_way.is_whole;
        let is_counted = tail.len() as u64 == found.end.saturating_sub(self.end());
        match is_in_order && is_whole && is_counted && (has_no_gap || under_way.is_uncertain) {
            true => Ok(()),
            false => Err(format!(
                "behind offset {} stand {} messages that are not the beginning of the call that was on its way",
                self.end(),
                tail.len()
            )),
        }
    }

    /// All of `found` is durable, and what it lacks is gone.
    pub(crate) fn read(&mut self, found: &FoundPartition) {
        self.durable = self.durable.max(found.end);
        self.start = found.start;
        let is_gone = |offset: &u64| !found.messages.contains_key(offset);
        self.removed.extend((found.start..found.end).filter(is_gone));
    }

    fn adopt(&mut self, found: &FoundPartition) {
        self.messages.truncate(found.end as usize);
        self.messages.extend(found.messages.range(self.end()..).map(|(_, message)| message.clone()));
        (self.start, self.durable) = (found.start, found.end);
        self.removed = (found.start..found.end).filter(|offset| !found.messages.contains_key(offset)).collect();
        for offsets in self.sequences.values_mut() {
            offsets.retain(|offset| *offset < found.end);
        }
    }
}
