//! What the log has promised about a partition and about a topic.

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
    /// All messages ever accepted, by offset, including those removed since.
    pub(crate) messages: Vec<Message>,
    /// Messages below this offset survive a power cut.
    pub(crate) durable: u64,
    /// The first offset.
    pub(crate) start: u64,
    /// Offsets removed by compaction. They never come back.
    removed: BTreeSet<u64>,
    /// The offset of each message of an idempotent producer, by its sequence.
    pub(crate) sequences: BTreeMap<ProducerName, Vec<u64>>,
}

/// The effect that an interrupted call may have had on one partition.
#[derive(Debug, Default)]
pub(crate) struct InProgress<'a> {
    /// Its new messages for this partition, in order.
    pub(crate) messages: Vec<&'a Message>,
    /// Each of them may belong to another partition.
    pub(crate) is_uncertain: bool,
    /// They are stored together or not at all.
    pub(crate) is_atomic: bool,
    /// Retention may have removed everything below this offset.
    pub(crate) may_start_at: u64,
    /// Compaction may have removed messages below this offset.
    pub(crate) may_compact_below: u64,
}

impl Topic {
    pub(crate) fn new(partitions: u32, settings: TopicSettings) -> Self {
        Self { settings, partitions: vec![Partition::default(); partitions as usize] }
    }

    /// The position of the message with this id.
    pub(crate) fn find(&self, id: MessageId) -> Option<Position> {
        let in_partition = |(number, partition): (usize, &Partition)| {
            let kept = partition.messages.iter().enumerate().skip(partition.start as usize);
            let offset = kept.into_iter().find(|(_, message)| message.id == id)?.0 as u64;
            Some(Position { partition: number as u32, offset })
        };
        self.partitions.iter().enumerate().find_map(in_partition)
    }

    /// The existing position that a duplicate of this message gets.
    pub(crate) fn duplicate(&self, id: MessageId) -> Option<Position> {
        if self.settings.deduplicate { self.find(id) } else { None }
    }

    /// Replaces the promise with what was found.
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

    /// The message at `offset`, unless it was removed.
    pub(crate) fn get(&self, offset: u64) -> Option<&Message> {
        let is_there = offset >= self.start && !self.removed.contains(&offset);
        self.messages.get(offset as usize).filter(|_| is_there)
    }

    /// The first offset from `offset` below `end` that has a message; `end` if there is none.
    pub(crate) fn next_from(&self, offset: u64, end: u64) -> u64 {
        (offset..end).find(|offset| self.get(*offset).is_some()).unwrap_or(end)
    }

    /// Checks that `found` has everything that was promised, and nothing that was never sent.
    pub(crate) fn compare(&self, found: &FoundPartition, in_progress: &InProgress<'_>) -> Result<(), String> {
        let latest = self.start.max(in_progress.may_start_at);
        if !(self.start..=latest).contains(&found.start) {
            let start = self.start;
            return Err(format!("it starts at offset {}; expected {start} to {latest}", found.start));
        }
        if found.end < self.durable {
            return Err(format!("acknowledged messages are missing from offset {}", found.end));
        }
        for offset in found.start..found.end.min(self.end()) {
            let stored = &self.messages[offset as usize];
            match found.messages.get(&offset) {
                Some(message) if message != stored => return Err(format!("offset {offset} has a wrong message")),
                Some(_) if self.removed.contains(&offset) => {
                    return Err(format!("the removed message at offset {offset} is back"));
                }
                Some(_) => {}
                None if self.removed.contains(&offset) => {}
                None if offset < in_progress.may_compact_below && self.is_superseded(offset, found.end) => {}
                None => return Err(format!("the acknowledged message at offset {offset} is missing")),
            }
        }
        self.compare_tail(found, in_progress)
    }

    /// Whether a later message below `end` has the same key.
    fn is_superseded(&self, offset: u64, end: u64) -> bool {
        let later = &self.messages[offset as usize + 1..end.min(self.end()) as usize];
        let key = &self.messages[offset as usize].key;
        key.is_some() && later.iter().any(|message| message.key == *key)
    }

    /// Checks that the messages after the acknowledged ones are a prefix of those of the interrupted call.
    fn compare_tail(&self, found: &FoundPartition, in_progress: &InProgress<'_>) -> Result<(), String> {
        let tail: Vec<&Message> = found.messages.range(self.end()..).map(|(_, message)| message).collect();
        let expected = &in_progress.messages;
        let mut rest = expected.iter();
        let is_in_order = tail.iter().all(|found| rest.by_ref().any(|expected| expected == found));
        let has_no_gap = tail.iter().zip(expected).all(|(found, expected)| expected == found);
        let is_atomic = tail.is_empty() || tail.len() == expected.len() || !in_progress.is_atomic;
        let is_counted = tail.len() as u64 == found.end.saturating_sub(self.end());
        match is_in_order && is_atomic && is_counted && (has_no_gap || in_progress.is_uncertain) {
            true => Ok(()),
            false => Err(format!(
                "after offset {} there are {} messages that are not a prefix of the interrupted call",
                self.end(),
                tail.len()
            )),
        }
    }

    /// Records that all of `found` is durable, and that everything it lacks is removed.
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
