//! What can be chosen when a log is opened.

use std::time::Duration;

use landfall_core::{Error, Result};

use crate::settings::TopicSettings;
use crate::{batch, segment};

/// How a log is laid out and how much it lets through. None of it changes what is already stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Partitions of a topic that comes into being with its first message.
    pub partitions: u32,
    /// A segment that would grow beyond this is finished and the next one begun. No message can be larger.
    pub segment_bytes: u64,
    /// Unacknowledged deliveries a subscriber may have at a time.
    pub max_in_flight: usize,
    /// When a publisher is told that its messages were accepted.
    pub acknowledge: Acknowledge,
    /// When what was written is synced.
    pub flush: Flush,
    /// Settings of a topic that comes into being with its first message.
    pub topic: TopicSettings,
}

/// How far a message must have come before its publisher is told that it was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Acknowledge {
    /// Nowhere yet: a crash of the process may lose it.
    None,
    /// In the hands of the operating system: a power cut may lose it.
    Written,
    /// On the disk.
    #[default]
    Synced,
}

/// When what was written is made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flush {
    /// Each group of batches that was written together.
    #[default]
    EveryBatch,
    /// After this many messages.
    EveryMessages(u32),
    /// This long after the first message that is not synced.
    Every(Duration),
}

/// What is left for one record in a segment must be worth having.
const SMALLEST_SEGMENT: u64 = 1024;
/// Positions inside a segment and lengths of batches are 32 bits wide on disk.
const LARGEST_SEGMENT: u64 = 2 * 1024 * 1024 * 1024;
/// Each partition is a folder and costs a sync when it is written to.
const MOST_PARTITIONS: u32 = 1024;

impl Default for Options {
    fn default() -> Self {
        Self {
            partitions: 4,
            segment_bytes: 64 * 1024 * 1024,
            max_in_flight: 1024,
            acknowledge: Acknowledge::default(),
            flush: Flush::default(),
            topic: TopicSettings::default(),
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<()> {
        check_partitions(self.partitions)?;
        if !(SMALLEST_SEGMENT..=LARGEST_SEGMENT).contains(&self.segment_bytes) {
            return Err(Error::invalid(format!(
                "a segment must have {SMALLEST_SEGMENT} to {LARGEST_SEGMENT} bytes; {} were asked for",
                self.segment_bytes
            )));
        }
        if self.max_in_flight == 0 {
            return Err(Error::invalid("max_in_flight is 0, so that nothing could ever be delivered; 1 is the least"));
        }
        if matches!(self.flush, Flush::EveryMessages(0) | Flush::Every(Duration::ZERO)) {
            return Err(Error::invalid("flush is every 0 messages or 0 ms; to sync each batch, say so"));
        }
        self.topic.check()
    }

    /// The most bytes one encoded record may have: it must fit into a segment of its own.
    pub(crate) fn record_limit(&self) -> usize {
        (self.segment_bytes as usize) - segment::HEADER_BYTES - batch::HEADER_BYTES
    }

    /// The most bytes of records that are merged into one batch.
    pub(crate) fn batch_limit(&self) -> usize {
        self.record_limit().min(batch::MERGE_BYTES)
    }
}

pub(crate) fn check_partitions(partitions: u32) -> Result<()> {
    if (1..=MOST_PARTITIONS).contains(&partitions) {
        return Ok(());
    }
    Err(Error::invalid(format!("a topic needs 1 to {MOST_PARTITIONS} partitions; {partitions} were asked for")))
}
