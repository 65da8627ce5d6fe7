//! What can be chosen when a log is opened.

use std::time::Duration;

use landfall_core::{Error, Result};

use crate::storage::batch;
use crate::storage::segment;
use crate::topic::settings::TopicSettings;

/// How a log is laid out and how much it lets through. None of it changes what is already stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Partitions of a topic that comes into being with its first message.
    pub partitions: u32,
    /// A segment that would grow beyond this is finished and the next one begun. No message can be larger.
    pub segment_bytes: u64,
    /// A segment's file grows by steps of this many bytes, filled with zeros before they are needed; for batches of an
    /// eighth of that and more, by eight such steps that are set aside and not filled.
    pub preallocate_bytes: u64,
    /// When a publisher is told that its messages are accepted.
    pub acknowledge: Acknowledge,
    /// When what was written is synced.
    pub flush: Flush,
    /// What happens to messages of an idempotent producer that come before the ones before them.
    pub gaps: Gaps,
    /// Settings of a topic that comes into being with its first message.
    pub topic: TopicSettings,
    /// How often it looks for what need not be kept any longer.
    pub maintenance: Duration,
    /// Unacknowledged deliveries a subscriber may have at a time.
    pub max_in_flight: usize,
    /// A subscriber that neither waits for a delivery nor acknowledges or gives one back for this long loses its
    /// partitions to the other members of its group, if there are any, until it asks for the next delivery.
    pub session_timeout: Duration,
}

/// What has happened to a message when its publisher is told that it is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Acknowledge {
    /// It has its place, in memory. If the process dies it may be lost.
    None,
    /// It was written to the file. It survives the process, but not a power cut before the next sync.
    Written,
    /// It was synced: it survives a power cut.
    #[default]
    Synced,
}

/// When what was written is synced. Readers see nothing before that, whatever the publishers were told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flush {
    /// With everything that has queued up, as soon as the sync before is done.
    #[default]
    EveryBatch,
    /// After this many messages, and at the latest after 100 ms.
    EveryMessages(u32),
    /// This long after the first message that is not synced.
    Every(Duration),
}

/// What happens to messages of an idempotent producer that come before the ones before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gaps {
    /// They are refused, and may be sent again.
    Refuse,
    /// They wait until the gap closes: of each producer and partition so many batches and bytes, for so long. What is
    /// beyond that is refused, and may be sent again.
    Hold { batches: usize, bytes: usize, time: Duration },
}

impl Default for Gaps {
    fn default() -> Self {
        Gaps::Hold { batches: 64, bytes: 4 * 1024 * 1024, time: Duration::from_secs(5) }
    }
}

impl Flush {
    /// How long a message may wait for its sync.
    pub(crate) fn patience(self) -> Duration {
        match self {
            Flush::EveryBatch => Duration::ZERO,
            Flush::EveryMessages(_) => Duration::from_millis(100),
            Flush::Every(time) => time,
        }
    }
}

/// What is left for one record in a segment must be worth having.
const SMALLEST_SEGMENT: u64 = 1024;
/// A step is filled at once, in memory.
const LARGEST_STEP: u64 = 256 * 1024 * 1024;
/// Publishers may have to wait this long for their answer.
const LONGEST_FLUSH: Duration = Duration::from_secs(60);
/// Positions inside a segment and lengths of batches are 32 bits wide on disk.
const LARGEST_SEGMENT: u64 = 2 * 1024 * 1024 * 1024;
/// Each partition is a folder and costs a sync when it is written to.
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
                "a segment must have {SMALLEST_SEGMENT} to {LARGEST_SEGMENT} bytes; {} were asked for",
                self.segment_bytes
            )));
        }
        if !(1..=LARGEST_STEP).contains(&self.preallocate_bytes) {
            return Err(Error::invalid(format!(
                "a segment grows by steps of 1 to {LARGEST_STEP} bytes; {} were asked for",
                self.preallocate_bytes
            )));
        }
        if matches!(self.flush, Flush::EveryMessages(0)) || self.flush.patience() > LONGEST_FLUSH {
            return Err(Error::invalid(format!(
                "what is written must be synced after 1 message or more, and after at most {LONGEST_FLUSH:?}; {:?} was \
                 asked for",
                self.flush
            )));
        }
        if self.max_in_flight == 0 {
            return Err(Error::invalid("max_in_flight is 0, so that nothing could ever be delivered; 1 is the least"));
        }
        if self.session_timeout.is_zero() {
            return Err(Error::invalid("session_timeout is 0, so that no subscriber could keep its partitions"));
        }
        self.topic.check()
    }

    /// The most bytes one encoded record may have: it must fit into a segment of its own.
    pub(crate) fn record_limit(&self) -> usize {
        (self.segment_bytes as usize) - segment::HEADER_BYTES - batch::FRAME_BYTES
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
