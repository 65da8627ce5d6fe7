//! The content that was read from a log.

use std::collections::BTreeMap;

use landfall_core::{Message, TopicName};
use landfall_log::TopicSettings;

pub(crate) type Content = BTreeMap<TopicName, FoundTopic>;

#[derive(Debug, Clone)]
pub(crate) struct FoundTopic {
    pub(crate) settings: TopicSettings,
    pub(crate) partitions: Vec<FoundPartition>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct FoundPartition {
    /// The partition's own start, and the offset after its last message.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// By offset; messages removed by compaction are missing.
    pub(crate) messages: BTreeMap<u64, Message>,
}

impl FoundPartition {
    /// Adds the next message that a reader returned.
    pub(crate) fn add(&mut self, offset: u64, message: Message) -> Result<(), String> {
        let last = self.messages.last_key_value().map(|(last, _)| *last);
        if last.is_some_and(|last| last >= offset) || offset < self.start {
            return Err(format!(
                "offset {offset} was read after {last:?} of a partition that starts at {}",
                self.start
            ));
        }
        self.messages.insert(offset, message);
        // The partition may have grown since its end was read.
        self.end = self.end.max(offset + 1);
        Ok(())
    }
}

pub(crate) fn message_count(content: &Content) -> usize {
    content.values().flat_map(|topic| &topic.partitions).map(|partition| partition.messages.len()).sum()
}
