//! The command's own view of topics and consumer groups, independent of the broker that holds them.
//!
//! The serialized fields are part of the command's contract (`topic list`, `show`, `create`, `configure`, `grow`,
//! `seek`).

use std::fmt;
use std::time::Duration;

use landfall::{GroupName, TopicName};
use serde::{Serialize, Serializer};

/// Retention, compaction and deduplication of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct TopicSettings {
    /// Messages older than this may be removed; `None` keeps them forever.
    #[serde(rename = "retention_ms", serialize_with = "millis")]
    pub(crate) retention_time: Option<Duration>,
    /// Bytes each partition keeps, newest first; `None` sets no limit.
    pub(crate) retention_bytes: Option<u64>,
    /// Whether retention may remove messages that a group has not finished.
    pub(crate) may_drop_unread: bool,
    /// Whether compaction keeps only the newest message of each key.
    pub(crate) compact: bool,
    /// Whether a known message id is acknowledged without being stored again.
    pub(crate) deduplicate: bool,
}

impl Default for TopicSettings {
    /// Keeps everything, and each message id once.
    fn default() -> Self {
        Self { retention_time: None, retention_bytes: None, may_drop_unread: false, compact: false, deduplicate: true }
    }
}

#[expect(clippy::ref_option, reason = "serde requires this signature")]
fn millis<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)).serialize(serializer)
}

/// A topic in a list. Fields that the broker does not report are `None`.
#[derive(Debug, Serialize)]
pub(crate) struct TopicSummary {
    pub(crate) topic: TopicName,
    pub(crate) partitions: u32,
    pub(crate) messages: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) skew: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) settings: Option<TopicSettings>,
}

/// The result of creating a topic.
#[derive(Debug)]
pub(crate) struct CreatedTopic {
    /// False if the topic already existed.
    pub(crate) created: bool,
    pub(crate) partitions: u32,
    /// `None` if the broker has no settings per topic.
    pub(crate) settings: Option<TopicSettings>,
}

/// A topic with its partitions and consumer groups.
#[derive(Debug, Serialize)]
pub(crate) struct TopicDetails {
    pub(crate) topic: TopicName,
    pub(crate) settings: TopicSettings,
    /// Stored messages, over all partitions.
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// The largest share of a partition, times the number of partitions: 1 if all hold the same number of messages.
    pub(crate) skew: f64,
    pub(crate) partitions: Vec<PartitionDetails>,
    /// By name.
    pub(crate) groups: Vec<GroupProgress>,
}

#[derive(Debug, Serialize)]
pub(crate) struct PartitionDetails {
    pub(crate) partition: u32,
    /// The offset of the oldest stored message.
    pub(crate) start: u64,
    /// The offset of the next message.
    pub(crate) end: u64,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) segments: usize,
    /// The fraction of the topic's messages in this partition, from 0 to 1.
    pub(crate) share: f64,
}

/// The progress of a consumer group in a topic.
#[derive(Debug, Serialize)]
pub(crate) struct GroupProgress {
    pub(crate) group: GroupName,
    /// `None` if unknown, because another process has the log open.
    pub(crate) members: Option<u32>,
    pub(crate) partitions: Vec<PartitionProgress>,
    /// Unfinished messages, over all partitions.
    pub(crate) lag: u64,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct PartitionProgress {
    pub(crate) partition: u32,
    /// Every lower offset is finished or removed.
    pub(crate) finished: u64,
    /// The offset of the next message.
    pub(crate) end: u64,
    pub(crate) lag: u64,
}

/// A change of the number of partitions.
#[derive(Debug, Serialize)]
pub(crate) struct Growth {
    pub(crate) topic: TopicName,
    pub(crate) before: u32,
    pub(crate) after: u32,
}

impl fmt::Display for Growth {
    /// The effect on the order of messages, for the operator.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topic, before, after } = self;
        if before == after {
            return write!(f, "topic {topic} has {after} partitions, as before; no key moves");
        }
        write!(
            f,
            "topic {topic} grows from {before} to {after} partitions, and many of its keys move to another partition: \
             messages published from now on may be consumed before older ones of the same key are finished; to \
             preserve order, stop publishing, let every group finish, grow the topic, and resume"
        )
    }
}
