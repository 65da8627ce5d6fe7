//! Retention: removes whole segments from the start of a partition.
//!
//! The order matters: record the partition's new start, so that missing earlier segments are known to be removed. Hide
//! them from readers, forget their ids, and then remove the files. A crash in between leaves files that the next open
//! removes.

use landfall_core::Result;
use tracing::{info, warn};

use crate::durable;
use crate::storage::cursor::Extents;
use crate::storage::index;
use crate::storage::partition::{Partition, Segment};
use crate::storage::segment;
use crate::storage::start::{self, Start};
use crate::topic::settings::TopicSettings;
use crate::write::dedup::DedupIndex;

/// What may be removed of one partition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    pub(crate) settings: TopicSettings,
    /// Current time, milliseconds since 1970.
    pub(crate) now: i64,
    /// Messages from this offset on are unfinished in some group; the largest number if there is no group.
    pub(crate) needed: u64,
}

/// What was removed of one partition.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Removed {
    pub(crate) segments: u64,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl Policy {
    /// Whether everything appended up to `latest` is too old.
    fn is_expired(&self, latest: Option<i64>) -> bool {
        self.settings.retention_time.is_some_and(|time| {
            let time = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
            latest.is_none_or(|latest| latest < self.now.saturating_sub(time))
        })
    }

    /// Whether the groups allow removing everything below `end`.
    fn may_drop(&self, end: u64) -> bool {
        end <= self.needed || self.settings.may_drop_unread
    }

    /// The number of `segments` to remove, from the first on. The last segment stays.
    fn count(&self, segments: &[Segment]) -> usize {
        let mut bytes: u64 = segments.iter().map(|segment| segment.extent.bytes).sum();
        let is_removable = |two: &&[Segment]| {
            let (segment, end) = (&two[0], two[1].extent.base_offset);
            let is_too_much = self.settings.retention_bytes.is_some_and(|limit| bytes > limit);
            bytes = bytes.saturating_sub(segment.extent.bytes);
            let latest = segment.index.as_ref().and_then(|index| index.latest_time());
            (is_too_much || self.is_expired(latest)) && self.may_drop(end)
        };
        segments.windows(2).take_while(is_removable).count()
    }
}

/// Whether all of the last segment may be removed, once it is no longer the last.
pub(crate) fn is_last_segment_expired(partition: &Partition, policy: &Policy) -> bool {
    let newest = partition.unfinished().latest_time();
    newest.is_some() && policy.is_expired(newest) && policy.may_drop(partition.next_offset())
}

/// Applies `policy` to `partition`, in which everything must be synced.
pub(crate) fn retain(partition: &Partition, dedup: Option<&mut DedupIndex>, policy: &Policy) -> Result<Removed> {
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
    log_removal(partition, start, &removed, policy);
    // The index of the last removed segment holds the state of all producers at its end.
    let producers = match gone.last().and_then(|segment| segment.index.as_ref()) {
        Some(index) => index.producers()?,
        None => Vec::new(),
    };
    write_start(partition, &Start { offset: start, producers })?;
    partition.remove_before(start);
    if let Some(dedup) = dedup {
        gone.iter().for_each(|segment| dedup.forget(partition.partition(), segment.extent.base_offset));
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

fn log_removal(partition: &Partition, start: u64, removed: &Removed, policy: &Policy) {
    let (topic, number) = (partition.topic(), partition.partition());
    let Removed { messages, bytes, .. } = *removed;
    if start > policy.needed {
        let unread = start - policy.needed.max(start - messages);
        warn!(%topic, partition = number, messages, bytes, unread, "retention removed unread messages of a group");
    } else {
        info!(%topic, partition = number, messages, bytes, "retention removed messages");
    }
}
