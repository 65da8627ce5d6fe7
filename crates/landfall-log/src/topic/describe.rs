//! Descriptions of topics: settings, and the distribution of messages over partitions.

use landfall_core::{Result, TopicName};
use serde::Serialize;

use crate::group::lag::GroupDescription;
use crate::log::Log;
use crate::read::reader::no_such_topic;
use crate::storage::partition::Partition;
use crate::topic::open::Topic;
use crate::topic::settings::TopicSettings;

/// A topic at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopicDescription {
    pub topic: TopicName,
    pub settings: TopicSettings,
    /// Stored messages, over all partitions.
    pub messages: u64,
    pub bytes: u64,
    /// The largest share of a partition, times the number of partitions: 1 if all have the same number of messages,
    /// and the number of partitions if one has everything.
    pub skew: f64,
    /// In order.
    pub partitions: Vec<PartitionDescription>,
    /// By name.
    pub groups: Vec<GroupDescription>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PartitionDescription {
    pub partition: u32,
    /// The offset of the oldest stored message.
    pub start: u64,
    /// The offset of the next message.
    pub end: u64,
    pub messages: u64,
    pub bytes: u64,
    pub segments: usize,
    /// The fraction of the topic's messages in this partition, from 0 to 1.
    pub share: f64,
}

impl TopicDescription {
    /// Computes totals, shares and skew from the partitions.
    pub(crate) fn new(
        topic: TopicName,
        settings: TopicSettings,
        mut partitions: Vec<PartitionDescription>,
        groups: Vec<GroupDescription>,
    ) -> Self {
        let messages: u64 = partitions.iter().map(|partition| partition.messages).sum();
        let bytes = partitions.iter().map(|partition| partition.bytes).sum();
        let mut largest: f64 = 0.0;
        for partition in &mut partitions {
            partition.share = if messages == 0 { 0.0 } else { partition.messages as f64 / messages as f64 };
            largest = largest.max(partition.share);
        }
        // An empty topic counts as even.
        let skew = if messages == 0 { 1.0 } else { largest * partitions.len() as f64 };
        Self { topic, settings, messages, bytes, skew, partitions, groups }
    }
}

impl PartitionDescription {
    pub(crate) fn new(partition: u32, start: u64, end: u64, bytes: u64, segments: usize) -> Self {
        Self { partition, start, end, messages: end.saturating_sub(start), bytes, segments, share: 0.0 }
    }

    fn from_partition(number: usize, partition: &Partition) -> Self {
        // Read the end before the start, so that the difference is never too large while messages come and go.
        let end = partition.next_offset();
        Self::new(number as u32, partition.start_offset(), end, partition.bytes(), partition.segment_count())
    }
}

impl Log {
    /// Describes `topic`; `NotFound` if it does not exist.
    pub fn describe(&self, topic: &TopicName) -> Result<TopicDescription> {
        let found = self.topics().get(topic).ok_or_else(|| no_such_topic(topic))?;
        self.describe_topic(&found)
    }

    /// Describes every topic, sorted by name.
    pub fn describe_all(&self) -> Result<Vec<TopicDescription>> {
        self.topics().all().iter().map(|topic| self.describe_topic(topic)).collect()
    }

    fn describe_topic(&self, topic: &Topic) -> Result<TopicDescription> {
        let (file, partitions) = (topic.file(), topic.partitions());
        let partitions = partitions
            .iter()
            .enumerate()
            .map(|(number, partition)| PartitionDescription::from_partition(number, partition));
        let groups = self.groups(&file.topic)?;
        Ok(TopicDescription::new(file.topic, file.settings, partitions.collect(), groups))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(messages: &[u64]) -> TopicDescription {
        let partition = |(number, end): (usize, &u64)| PartitionDescription::new(number as u32, 10, 10 + end, 0, 1);
        let partitions = messages.iter().enumerate().map(partition).collect();
        TopicDescription::new(TopicName::new("orders").unwrap(), TopicSettings::default(), partitions, Vec::new())
    }

    #[test]
    fn skew_is_one_if_even_and_the_partition_count_if_one_has_everything() {
        assert_eq!(spread(&[5, 5, 5, 5]).skew, 1.0);
        assert_eq!(spread(&[0, 8, 0, 0]).skew, 4.0);
        assert_eq!(spread(&[6, 2]).skew, 1.5);
        assert_eq!(spread(&[0, 0]).skew, 1.0);
        let shares: Vec<f64> = spread(&[6, 2]).partitions.iter().map(|partition| partition.share).collect();
        assert_eq!(shares, [0.75, 0.25]);
        assert_eq!(spread(&[6, 2]).messages, 8);
    }
}
