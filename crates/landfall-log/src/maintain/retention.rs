//! What a partition need not keep any longer.
//!
//! Whole segments go, from the front, and only in this order: the partition's new beginning is written down (so that
//! what is missing before it is known to have been removed), readers are sent past them, their ids are forgotten, and
//! then the files are removed. A crash in between leaves files that the next start removes.

use landfall_core::Result;
use tracing::{info, warn};

use crate::durable;
use crate::storage::cursor::Extents;
use crate::storage::index;
use crate::storage::partition::{Partition, Segment};
use crate::storage::segment;
use crate::storage::start::{self, Start};
use crate::topic::settings::TopicSettings;
use crate::write::seen::Seen;

/// What may go of one partition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    pub(crate) settings: TopicSettings,
    /// Now, milliseconds since 1970.
    pub(crate) now: i64,
    /// From this offset on there is something that a group has not finished; the largest number if there is no group.
    pub(crate) needed: u64,
}

/// What went of one partition.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Removed {
    pub(crate) segments: u64,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl Policy {
    /// Whether everything that was taken up to `latest` is too old.
    fn is_expired(&self, latest: Option<i64>) -> bool {
        self.settings.retention_time.is_some_and(|time| {
            let time = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
            latest.is_none_or(|latest| latest < self.now.saturating_sub(time))
        })
    }

    /// Whether everything below `end` may go, as far as groups are concerned.
    fn may_drop(&self, end: u64) -> bool {
        end <= self.needed || self.settings.may_drop_unread
    }

    /// How many of `segments` go, from the first on. The last one stays.
    fn count(&self, segments: &[Segment]) -> usize {
        let mut bytes: u64 = segments.iter().map(|segment| segment.extent.bytes).sum();
        let goes = |two: &&[Segment]| {
            let (segment, end) = (&two[0], two[1].extent.base_offset);
            let is_too_much = self.settings.retention_bytes.is_some_and(|limit| bytes > limit);
            bytes = bytes.saturating_sub(segment.extent.bytes);
            let latest = segment.index.as_ref().and_then(|index| index.latest_time());
            (is_too_much || self.is_expired(latest)) && self.may_drop(end)
        };
        segments.windows(2).take_while(goes).count()
    }
}

/// Whether all of the last segment may go, once it is no longer the last.
pub(crate) fn wants_all(partition: &Partition, policy: &Policy) -> bool {
    let newest = partition.unfinished().latest_time();
    newest.is_some() && policy.is_expired(newest) && policy.may_drop(partition.next_offset())
}

/// Removes what `policy` lets go of `partition`, in which everything must be synced.
pub(crate) fn retain(partition: &Partition, seen: Option<&mut Seen>, policy: &Policy) -> Result<Removed> {
    let segments = partition.segments().clone();
    let count = policy.count(&segments);
    let (gone, Some(first)) = (&segments[..count], segments.get(count)) else { return Ok(Removed::default()) };
    let Some(oldest) = gone.first() else { return Ok(Removed::default()) };
    let start = first.extent.base_offset;
    let removed = Removed {
        segments: gone.len() as u64,
        messages: start - oldest.extent.base_offset,
        bytes: gone.iter().map(|segment| segment.extent.bytes).sum(),
    };
    tell(partition, start, &removed, policy);
    // All that is known of producers whose messages go is in the index of the last segment that goes.
    let producers = match gone.last().and_then(|segment| segment.index.as_ref()) {
        Some(index) => index.producers()?,
        None => Vec::new(),
    };
    write_start(partition, &Start { offset: start, producers })?;
    partition.remove_before(start);
    if let Some(seen) = seen {
        gone.iter().for_each(|segment| seen.forget(partition.partition(), segment.extent.base_offset));
    }
    for segment in gone {
        let base_offset = segment.extent.base_offset;
        durable::remove(partition.disk(), &segment::path(partition.directory(), base_offset))?;
        durable::remove(partition.disk(), &index::path(partition.directory(), base_offset))?;
    }
    Ok(removed)
}

fn write_start(partition: &Partition, start: &Start) -> Result<()> {
    fail::fail_point!("landfall-log::skip-start", |_| Ok(()));
    start::write(partition.disk(), partition.directory(), start)
}

fn tell(partition: &Partition, start: u64, removed: &Removed, policy: &Policy) {
    let (topic, number) = (partition.topic(), partition.partition());
    let Removed { messages, bytes, .. } = *removed;
    if start > policy.needed {
        let unread = start - policy.needed.max(start - messages);
        warn!(%topic, partition = number, messages, bytes, unread, "removed messages that a group has not finished");
    } else {
        info!(%topic, partition = number, messages, bytes, "removed messages that need not be kept any longer");
    }
}
