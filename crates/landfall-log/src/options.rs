//! What can be chosen when a log is opened.

use std::time::Duration;

use landfall_core::{Error, Result};

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
    /// A subscriber that neither waits for a delivery nor acknowledges or gives one back for this long loses its
    /// partitions to the other members of its group, if there are any, until it asks for the next delivery.
    pub session_timeout: Duration,
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
            session_timeout: Duration::from_secs(60),
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<()> {
        if !(1..=MOST_PARTITIONS).contains(&self.partitions) {
            return Err(Error::invalid(format!(
                "a topic needs 1 to {MOST_PARTITIONS} partitions; {} were asked for",
                self.partitions
            )));
        }
        if !(SMALLEST_SEGMENT..=LARGEST_SEGMENT).contains(&self.segment_bytes) {
            return Err(Error::invalid(format!(
                "a segment must have {SMALLEST_SEGMENT} to {LARGEST_SEGMENT} bytes; {} were asked for",
                self.segment_bytes
            )));
        }
        if self.max_in_flight == 0 {
            return Err(Error::invalid("max_in_flight is 0, so that nothing could ever be delivered; 1 is the least"));
        }
        if self.session_timeout.is_zero() {
            return Err(Error::invalid("session_timeout is 0, so that no subscriber could keep its partitions"));
        }
        Ok(())
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
