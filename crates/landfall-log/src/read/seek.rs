//! Where in a partition to begin: at the beginning, the end, an offset or a moment.

use std::sync::Arc;

use landfall_core::{GroupName, Result, StartAt, Timestamp, TopicName};

use crate::log::Log;
use crate::read::read_only::blocking;
use crate::read::reader::no_such_topic;
use crate::storage::cursor::{Cursor, Extents};

/// The offset that `from` means in the partition of `extents`. Blocks on its files.
pub(crate) fn offset(extents: &Arc<dyn Extents>, from: StartAt) -> Result<u64> {
    match from {
        StartAt::Beginning => Ok(0),
        StartAt::Offset(offset) => Ok(offset),
        StartAt::End => end(extents),
        StartAt::Time(time) => offset_at(extents, time),
    }
}

/// The offset that `from` means in a partition that did not exist when it was said: everything in it came later.
pub(crate) fn offset_in_later_partitions(from: StartAt) -> u64 {
    if let StartAt::Offset(offset) = from { offset } else { 0 }
}

/// The first offset that is still there.
pub(crate) fn start(extents: &dyn Extents) -> Result<u64> {
    Ok(extents.segment_for(0)?.map_or(0, |first| first.extent.base_offset))
}

/// The offset behind the last record. Blocks on the files where only reading can tell.
pub(crate) fn end(extents: &Arc<dyn Extents>) -> Result<u64> {
    match extents.end() {
        Some(end) => Ok(end),
        None => Ok(Cursor::new(Arc::clone(extents), 0).seek_end()?.0),
    }
}

/// The offset of the first batch that the log took at `time` or later, or the end if there is none. Reads every
/// batch before it, unless an index says where to begin.
fn offset_at(extents: &Arc<dyn Extents>, time: Timestamp) -> Result<u64> {
    let mut behind = extents.near_time(time.as_millis());
    let mut cursor = Cursor::new(Arc::clone(extents), behind);
    while let Some(batch) = cursor.next_batch()? {
        if batch.header.taken >= time.as_millis() {
            return Ok(batch.header.base_offset);
        }
        behind = batch.header.next_offset();
    }
    Ok(behind)
}

impl Log {
    /// Makes `group` go on from `to` in every partition of `topic`, back or ahead; durable when this returns. An
    /// offset outside of a partition means its beginning or end.
    ///
    /// Members go on from the new place at once; what they had in flight counts nothing any more, and acknowledging
    /// it is a `Conflict`. The group need not have members, nor have existed before. After an error the members
    /// have moved, but it may be undone when the log is opened again; calling this again tries again.
    ///
    /// `NotFound` if there is no such topic.
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
        let group = self.every_group().get(group, topic);
        group.seek(&offsets);
        self.flusher().save_now(group).await
    }
}
