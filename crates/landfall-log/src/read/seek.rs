//! Resolves a start position in a partition: beginning, end, offset or time.

use std::sync::Arc;

use landfall_core::{GroupName, Result, StartAt, Timestamp, TopicName};

use crate::log::Log;
use crate::read::read_only::blocking;
use crate::read::reader::no_such_topic;
use crate::storage::cursor::{Cursor, Extents};

/// Returns the offset that `from` means in the partition of `extents`. Blocks on its files.
pub(crate) fn offset(extents: &Arc<dyn Extents>, from: StartAt) -> Result<u64> {
    match from {
        StartAt::Beginning => Ok(0),
        StartAt::Offset(offset) => Ok(offset),
        StartAt::End => end(extents),
        StartAt::Time(time) => offset_at(extents, time),
    }
}

/// Returns the offset that `from` means in a partition added later: all its messages are newer.
pub(crate) fn offset_in_later_partitions(from: StartAt) -> u64 {
    if let StartAt::Offset(offset) = from { offset } else { 0 }
}

/// The first offset that is still stored.
pub(crate) fn start(extents: &dyn Extents) -> Result<u64> {
    Ok(extents.segment_for(0)?.map_or(0, |first| first.extent.base_offset))
}

/// The offset after the last record. Blocks on the files if it is only known by reading.
pub(crate) fn end(extents: &Arc<dyn Extents>) -> Result<u64> {
    match extents.end() {
        Some(end) => Ok(end),
        None => Ok(Cursor::new(Arc::clone(extents), 0).seek_end()?.0),
    }
}

/// Returns the offset of the first batch appended at `time` or later, or the end if there is none. Reads every earlier
/// batch, unless an index gives a closer start.
fn offset_at(extents: &Arc<dyn Extents>, time: Timestamp) -> Result<u64> {
    let mut next = extents.offset_near_time(time.as_millis());
    let mut cursor = Cursor::new(Arc::clone(extents), next);
    while let Some(batch) = cursor.next_batch()? {
        if batch.header.appended_at >= time.as_millis() {
            return Ok(batch.header.base_offset);
        }
        next = batch.header.next_offset();
    }
    Ok(next)
}

impl Log {
    /// Moves `group` to `to` in every partition of `topic`, backward or forward; durable when this returns. An offset
    /// outside of a partition means its start or end.
    ///
    /// Members continue from the new offset at once. Acknowledging a delivery from before is a `Conflict`. The group
    /// need not have members or exist. After an error the members have moved, but reopening the log may undo it; call
    /// this again to retry.
    ///
    /// `NotFound` if the topic does not exist.
    pub async fn seek(&self, topic: &TopicName, group: &GroupName, to: StartAt) -> Result<()> {
        let found = self.topics().get(topic).ok_or_else(|| no_such_topic(topic))?;
        let offsets = blocking(move || {
            let within = |extents: Arc<dyn Extents>| {
                let (wanted, start) = (offset(&extents, to)?, start(&*extents)?);
                Ok(wanted.min(end(&extents)?).max(start))
            };
            found.partitions().iter().map(|partition| within(partition.clone())).collect::<Result<Vec<_>>>()
        })
        .await?;
        let group = self.all_groups().get(group, topic);
        group.seek(&offsets);
        self.flusher().save_now(group).await
    }
}
