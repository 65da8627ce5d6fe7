//! Options for opening a log.

use std::time::Duration;

use landfall_core::{Error, Result};

use crate::storage::batch;
use crate::storage::segment;
use crate::topic::settings::TopicSettings;

/// The layout and limits of a log. Changing them does not affect stored messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Partitions of a topic that its first message creates.
    pub partitions: u32,
    /// Maximum size of a segment; a batch that would exceed it starts a new one. Also limits the size of a message.
    pub segment_bytes: u64,
    /// The step by which a segment's file grows, filled with zeros in advance. For batches of at least an eighth of it
    /// the file grows by eight steps that are allocated but not filled.
    pub preallocate_bytes: u64,
    /// When a publisher receives the acknowledgement.
    pub acknowledge: Acknowledge,
    /// When written messages are synced.
    pub flush: Flush,
    /// How to handle messages of an idempotent producer whose predecessors are missing.
    pub gaps: Gaps,
    /// Settings of a topic that its first message creates.
    pub topic: TopicSettings,
    /// Interval of retention and compaction.
    pub maintenance: Duration,
    /// Maximum unacknowledged deliveries of one subscriber.
    pub max_in_flight: usize,
    /// A subscriber that neither waits for, acknowledges nor returns a delivery for this long loses its partitions. The
    /// other members of its group get them. It gets partitions again when it asks for its next delivery.
    pub session_timeout: Duration,
}

/// The durability of a message when its publisher receives the acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Acknowledge {
    /// It has an offset, in memory. It may be lost if the process dies.
    None,
    /// It was written to the file. It survives the process, but not a power cut before the next sync.
    Written,
    /// It was synced and survives a power cut.
    #[default]
    Synced,
}

/// When written messages are synced. Readers see them only after that, even if they were acknowledged earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flush {
    /// As soon as the previous sync is done, together with everything that has queued up.
    #[default]
    EveryBatch,
    /// After this many messages, and at most 100 ms after the first.
    EveryMessages(u32),
    /// This long after the first unsynced message.
    Every(Duration),
}

/// How to handle messages of an idempotent producer whose predecessors are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gaps {
    /// Refuse them as retriable.
    Refuse,
    /// Hold them until the gap closes. The limits apply to each producer and partition; messages beyond them are
    /// refused as retriable.
    Hold { batches: usize, bytes: usize, time: Duration },
}

impl Default for Gaps {
    fn default() -> Self {
        Gaps::Hold { batches: 64, bytes: 4 * 1024 * 1024, time: Duration::from_secs(5) }
    }
}

impl Flush {
    /// The longest time a message may wait for its sync.
    pub(crate) fn max_delay(self) -> Duration {
        match self {
            Flush::EveryBatch => Duration::ZERO,
            Flush::EveryMessages(_) => Duration::from_millis(100),
            Flush::Every(time) => time,
        }
    }
}

/// A segment must have useful space for one record.
const SMALLEST_SEGMENT: u64 = 1024;
/// A step is filled in one write, from memory.
const LARGEST_STEP: u64 = 256 * 1024 * 1024;
/// Publishers may wait this long for their acknowledgement.
const LONGEST_FLUSH: Duration = Duration::from_secs(60);
/// Positions inside a segment and lengths of batches are 32 bits wide on disk.
const LARGEST_SEGMENT: u64 = 2 * 1024 * 1024 * 1024;
/// Each partition is a directory and costs a sync when it is written to.
const MOST_PARTITIONS: u32 = 1024;

impl Default for Options {
    fn default() -> Self {
        Self {
            partitions: 4,
            segment_bytes: 64 * 1024 * 1024,
            preallocate_bytes: 1024 * 1024,
            acknowledge: Acknowledge::default(),
            flush: Flush::default(),
            gaps: Gaps::default(),
            topic: TopicSettings::default(),
            maintenance: Duration::from_secs(30),
            max_in_flight: 1024,
            session_timeout: Duration::from_secs(60),
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<()> {
        check_partitions(self.partitions)?;
        if !(SMALLEST_SEGMENT..=LARGEST_SEGMENT).contains(&self.segment_bytes) {
            return Err(Error::invalid(format!(
                "segment_bytes is {}; it must be {SMALLEST_SEGMENT} to {LARGEST_SEGMENT}",
                self.segment_bytes
            )));
        }
        if !(1..=LARGEST_STEP).contains(&self.preallocate_bytes) {
            return Err(Error::invalid(format!(
                "preallocate_bytes is {}; it must be 1 to {LARGEST_STEP}",
                self.preallocate_bytes
            )));
        }
        if matches!(self.flush, Flush::EveryMessages(0)) || self.flush.max_delay() > LONGEST_FLUSH {
            return Err(Error::invalid(format!(
                "flush is {:?}; it must sync after at least 1 message and after at most {LONGEST_FLUSH:?}",
                self.flush
            )));
        }
        if self.max_in_flight == 0 {
            return Err(Error::invalid("max_in_flight is 0, so no message could be delivered; set it to 1 or more"));
        }
        if self.session_timeout.is_zero() {
            return Err(Error::invalid(
                "session_timeout is 0, so no subscriber could keep its partitions; set it higher",
            ));
        }
        self.topic.check()
    }

    /// The maximum size of one encoded record: it must fit into a segment of its own.
    pub(crate) fn record_limit(&self) -> usize {
        (self.segment_bytes as usize) - segment::HEADER_BYTES - batch::FRAME_BYTES
    }

    /// The maximum size of the records that are merged into one batch.
    pub(crate) fn batch_limit(&self) -> usize {
        self.record_limit().min(batch::MERGE_BYTES)
    }
}

pub(crate) fn check_partitions(partitions: u32) -> Result<()> {
    if (1..=MOST_PARTITIONS).contains(&partitions) {
        return Ok(());
    }
    Err(Error::invalid(format!("a topic needs 1 to {MOST_PARTITIONS} partitions, not {partitions}")))
}
