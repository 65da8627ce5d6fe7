//! Looks into a log's folder from outside, beside the process that has it open.
//!
//! It takes no lock and writes nothing. It sees what stands in the files: the end of a segment that does not make a
//! whole batch is not there yet. Unlike a reader inside the process it cannot know whether the last whole batch was
//! synced; it may show a message a moment before its publisher is told that it was accepted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use landfall_core::{Error, ErrorKind, GroupName, Result, StartAt, StoredMessage, TopicInfo, TopicName, TopicReader};

use crate::cursor::{Cursor, Extents, Readable, Tail};
use crate::disk::{Access, Disk, SystemDisk};
use crate::durable::failed;
use crate::group_file::GroupFile;
use crate::lag::GroupDescription;
use crate::lanes::Lanes;
use crate::segment::{self, Extent};
use crate::topic_reader::{collect, no_such_topic};
use crate::{format, lag, seek, topic};

/// A log's folder, for reading only.
#[derive(Debug, Clone)]
pub struct ReadOnlyLog {
    topics: PathBuf,
    groups: PathBuf,
}

impl ReadOnlyLog {
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        if !format::check(&SystemDisk, folder)? {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no log in the folder {}", folder.display())));
        }
        Ok(Self { topics: folder.join("topics"), groups: folder.join("groups") })
    }

    /// Every topic, by name. Reads the last segment of each partition.
    pub async fn topics(&self) -> Result<Vec<TopicInfo>> {
        let folder = self.topics.clone();
        blocking(move || {
            let topics = topic::list(&SystemDisk, &folder)?;
            topics.into_iter().map(|(name, partitions)| info(&folder.join(name.as_str()), name, partitions)).collect()
        })
        .await
    }

    /// Every group on `topic` that has finished something, by name, as far as its progress is saved.
    pub async fn groups(&self, topic: &TopicName) -> Result<Vec<GroupDescription>> {
        let (folder, groups, topic) = (self.topics.join(topic.as_str()), self.groups.clone(), topic.clone());
        blocking(move || {
            // Progress before the ends, so that nobody seems to have finished what is not there.
            let saved = lag::saved(&SystemDisk, &groups, &topic)?;
            let partitions = partitions(&folder)?.unwrap_or_default();
            let described = |file: GroupFile| GroupDescription::new(file.group, None, &file.finished, &partitions);
            saved.into_iter().map(described).collect()
        })
        .await
    }

    /// How many messages of `topic` the group has not finished, as far as its progress is saved.
    pub async fn unfinished(&self, topic: &TopicName, group: &GroupName) -> Result<u64> {
        let (folder, group) = (self.topics.join(topic.as_str()), group.clone());
        let file = GroupFile::path(&self.groups, &group, topic);
        blocking(move || {
            let finished = GroupFile::read(&SystemDisk, &file)?.map(|file| file.finished).unwrap_or_default();
            let partitions = partitions(&folder)?.unwrap_or_default();
            Ok(GroupDescription::new(group, None, &finished, &partitions)?.lag)
        })
        .await
    }

    /// Reads `topic`; later reads see what was written in the meantime.
    pub async fn read(&self, topic: &TopicName, from: StartAt) -> Result<Box<dyn TopicReader>> {
        let folder = self.topics.join(topic.as_str());
        let name = topic.clone();
        blocking(move || {
            let mut lanes = Lanes::default();
            for extents in partitions(&folder)?.ok_or_else(|| no_such_topic(&name))? {
                let offset = seek::offset(&extents, from)?;
                lanes.add(extents, offset);
            }
            let later = seek::offset_in_later_partitions(from);
            Ok(Box::new(FileReader { topic: name, folder, lanes, later, collected: Vec::new() }) as _)
        })
        .await
    }
}

/// The partitions of the topic in `folder`; `None` if there is no such topic.
fn partitions(folder: &Path) -> Result<Option<Vec<Arc<dyn Extents>>>> {
    let count = topic::partition_count(&SystemDisk, folder)?;
    Ok(count.map(|count| (0..count).map(|number| FileExtents::of(folder, number)).collect()))
}

fn info(folder: &Path, topic: TopicName, partitions: u32) -> Result<TopicInfo> {
    let (mut messages, mut bytes) = (0, 0);
    for number in 0..partitions {
        let extents = FileExtents::of(folder, number);
        messages += Cursor::new(Arc::clone(&extents), 0).seek_end()?;
        for base_offset in segment::list(&SystemDisk, extents.directory())? {
            bytes += file_bytes(&segment::path(extents.directory(), base_offset))?;
        }
    }
    Ok(TopicInfo { topic, partitions, messages, bytes })
}

struct FileReader {
    topic: TopicName,
    folder: PathBuf,
    lanes: Lanes,
    /// Where partitions that are added later are read from.
    later: u64,
    collected: Vec<StoredMessage>,
}

#[async_trait]
impl TopicReader for FileReader {
    async fn read(&mut self, limit: usize) -> Result<Vec<StoredMessage>> {
        let folder = self.folder.clone();
        let partitions = blocking(move || topic::partition_count(&SystemDisk, &folder)).await?;
        for number in self.lanes.len() as u32..partitions.unwrap_or_default() {
            self.lanes.add(FileExtents::of(&self.folder, number), self.later);
        }
        collect(&self.topic, &mut self.lanes, &mut self.collected, limit).await
    }
}

/// A partition as its files are at the moment.
#[derive(Debug)]
struct FileExtents {
    number: u32,
    directory: PathBuf,
}

impl FileExtents {
    fn of(topic_folder: &Path, number: u32) -> Arc<dyn Extents> {
        Arc::new(Self { number, directory: topic::partition_folder(topic_folder, number) })
    }
}

impl Extents for FileExtents {
    fn disk(&self) -> &dyn Disk {
        &SystemDisk
    }

    fn partition(&self) -> u32 {
        self.number
    }

    fn directory(&self) -> &Path {
        &self.directory
    }

    fn segment_for(&self, offset: u64) -> Result<Option<Readable>> {
        // The list before the size: a segment that has a successor in the list has its final size.
        let bases = segment::list(&SystemDisk, &self.directory)?;
        let index = bases.partition_point(|base| *base <= offset).saturating_sub(1);
        let Some(&base_offset) = bases.get(index) else { return Ok(None) };
        let tail = if index + 1 == bases.len() { Tail::Growing } else { Tail::Final };
        let bytes = file_bytes(&segment::path(&self.directory, base_offset))?;
        Ok(Some(Readable { extent: Extent { base_offset, bytes }, tail }))
    }

    fn end(&self) -> Option<u64> {
        None
    }
}

fn file_bytes(path: &Path) -> Result<u64> {
    SystemDisk.open(path, Access::Read).and_then(|file| file.length()).map_err(failed("look at", path))
}

/// Runs `work` where it may block.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(|error| Error::new(ErrorKind::Internal, "reading the log failed").with_source(error))?
}
