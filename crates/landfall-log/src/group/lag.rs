//! The progress and lag of groups, for people and for alerts.

use std::path::Path;
use std::sync::Arc;

use landfall_core::{GroupName, Result, TopicName};
use serde::Serialize;

use crate::disk::Disk;
use crate::durable;
use crate::group::file::GroupFile;
use crate::log::Log;
use crate::read::seek;
use crate::storage::cursor::Extents;

/// The progress of a group in a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GroupDescription {
    pub group: GroupName,
    /// The number of members; `None` if unknown, because another process has the log open.
    pub members: Option<u32>,
    pub partitions: Vec<PartitionLag>,
    /// Unfinished messages, over all partitions.
    pub lag: u64,
}

/// The progress of a group in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PartitionLag {
    pub partition: u32,
    /// Everything below this offset is finished, or was removed.
    pub finished: u64,
    /// The offset after the last message.
    pub end: u64,
    pub lag: u64,
}

impl GroupDescription {
    /// Describes a group with the progress `finished` in each of `partitions`. Blocks on their files if their ends are
    /// only known by reading.
    pub(crate) fn new(
        group: GroupName,
        members: Option<u32>,
        finished: &[u64],
        partitions: &[Arc<dyn Extents>],
    ) -> Result<Self> {
        let lag = |(index, extents): (usize, &Arc<dyn Extents>)| {
            let finished = finished.get(index).copied().unwrap_or_default().max(seek::start(&**extents)?);
            let end = seek::end(extents)?;
            Ok(PartitionLag { partition: index as u32, finished, end, lag: end.saturating_sub(finished) })
        };
        let partitions: Vec<PartitionLag> = partitions.iter().enumerate().map(lag).collect::<Result<_>>()?;
        Ok(Self { group, members, lag: partitions.iter().map(|partition| partition.lag).sum(), partitions })
    }
}

/// Reads the saved groups on `topic` under `folder`, sorted by name.
pub(crate) fn saved(disk: &dyn Disk, folder: &Path, topic: &TopicName) -> Result<Vec<GroupFile>> {
    let names = durable::list(disk, folder)?.into_iter().filter_map(|name| GroupName::new(name).ok());
    names.filter_map(|group| GroupFile::read(disk, &GroupFile::path(folder, &group, topic)).transpose()).collect()
}

impl Log {
    /// Describes every group on `topic` that has members or progress, sorted by name.
    pub fn groups(&self, topic: &TopicName) -> Result<Vec<GroupDescription>> {
        // Read progress before the ends, so that no group seems to be ahead of its partition.
        let on_topic = self.all_groups().for_topic(topic);
        let groups: Vec<_> = on_topic.iter().map(|group| (group, group.finished())).collect();
        let found = self.topics().get(topic);
        let partitions = found.iter().flat_map(|topic| topic.partitions().to_vec());
        let partitions: Vec<Arc<dyn Extents>> = partitions.map(|partition| partition as _).collect();
        let description = |(group, finished): (&Arc<crate::group::progress::Group>, Vec<u64>)| {
            let members = Some(group.member_count() as u32);
            GroupDescription::new(group.name().clone(), members, &finished, &partitions)
        };
        groups.into_iter().map(description).collect()
    }
}
