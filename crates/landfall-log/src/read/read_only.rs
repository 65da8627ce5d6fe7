//! Reads a log's folder while another process has it open.
//!
//! Takes no lock and writes nothing. It sees the content of the files; an incomplete batch at the end of a segment is
//! ignored. Unlike a reader inside the process, it cannot know whether the last complete batch was synced. So it may
//! return a message just before its publisher gets the acknowledgement.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use landfall_core::{
    Error, ErrorKind, GroupName, Result, StartAt, StoredMessage, Timestamp, TopicInfo, TopicName, TopicReader,
};

use crate::damage::verify::{self, Folder, Report};
use crate::disk::{Disk, SystemDisk};
use crate::durable;
use crate::format;
use crate::group::file::GroupFile;
use crate::group::lag;
use crate::group::lag::GroupDescription;
use crate::read::lanes::Lanes;
use crate::read::reader::{collect, no_such_topic};
use crate::read::seek;
use crate::storage::cursor::{Cursor, EndState, Extents, ReadableSegment};
use crate::storage::index::BatchPosition;
use crate::storage::segment::{self, Extent, SegmentHeader};
use crate::topic::describe::{PartitionDescription, TopicDescription};
use crate::topic::file::TopicFile;
use crate::topic::open as topic;

/// A log's folder, opened for reading only.
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

    /// Lists every topic, sorted by name. Reads the last segment of each partition.
    pub async fn topics(&self) -> Result<Vec<TopicInfo>> {
        Ok(self.describe_all().await?.into_iter().map(info).collect())
    }

    /// Describes every topic, sorted by name. Reads the last segment of each partition.
    pub async fn describe_all(&self) -> Result<Vec<TopicDescription>> {
        let log = self.clone();
        blocking(move || {
            let topics = topic::list(&SystemDisk, &log.topics)?;
            topics.into_iter().map(|file| describe(&log, file)).collect()
        })
        .await
    }

    /// Describes `topic`; `NotFound` if it does not exist.
    pub async fn describe(&self, topic: &TopicName) -> Result<TopicDescription> {
        let (log, topic) = (self.clone(), topic.clone());
        blocking(move || {
            let file = TopicFile::read(&SystemDisk, &log.topics.join(topic.as_str()))?;
            describe(&log, file.ok_or_else(|| no_such_topic(&topic))?)
        })
        .await
    }

    /// Describes every group with saved progress on `topic`, sorted by name.
    pub async fn groups(&self, topic: &TopicName) -> Result<Vec<GroupDescription>> {
        let (log, topic) = (self.clone(), topic.clone());
        blocking(move || groups(&log, &topic)).await
    }

    /// Returns the lag of the group on `topic`, according to its saved progress.
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

    /// Reads every byte of `topic`, or of all topics, and reports all damage. Calls `progress` with the number of
    /// bytes read since the last call; they add up to [`ReadOnlyLog::bytes_to_verify`].
    pub async fn verify(
        &self,
        topic: Option<&TopicName>,
        mut progress: impl FnMut(u64) + Send + 'static,
    ) -> Result<Vec<Report>> {
        let (root, topic) = (self.root(), topic.cloned());
        blocking(move || verify::verify(Folder { disk: &SystemDisk, root: &root }, topic.as_ref(), &mut progress)).await
    }

    /// The number of bytes that [`ReadOnlyLog::verify`] reads; approximate while the log is being written.
    pub async fn bytes_to_verify(&self, topic: Option<&TopicName>) -> Result<u64> {
        let (root, topic) = (self.root(), topic.cloned());
        blocking(move || verify::bytes_to_read(Folder { disk: &SystemDisk, root: &root }, topic.as_ref())).await
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.topics.parent().unwrap_or(Path::new(".")).to_owned()
    }

    /// Reads `topic`; later reads see messages written meanwhile.
    pub async fn read(&self, topic: &TopicName, from: StartAt) -> Result<Box<dyn TopicReader>> {
        let folder = self.topics.join(topic.as_str());
        let name = topic.clone();
        blocking(move || {
            let file = TopicFile::read(&SystemDisk, &folder)?.ok_or_else(|| no_such_topic(&name))?;
            let mut lanes = Lanes::default();
            for extents in (0..file.partitions).map(|number| FileExtents::open(&folder, number)) {
                let offset = seek::offset(&extents, from)?;
                lanes.add(extents, offset);
            }
            let later = seek::offset_in_later_partitions(from);
            let created = file.created;
            Ok(Box::new(FileReader { topic: name, folder, created, lanes, later, collected: Vec::new() }) as _)
        })
        .await
    }
}

/// Returns the partitions of the topic in `folder`; `None` if it does not exist.
pub(crate) fn partitions(folder: &Path) -> Result<Option<Vec<Arc<dyn Extents>>>> {
    let file = TopicFile::read(&SystemDisk, folder)?;
    Ok(file.map(|file| (0..file.partitions).map(|number| FileExtents::open(folder, number)).collect()))
}

fn info(description: TopicDescription) -> TopicInfo {
    let TopicDescription { topic, messages, bytes, partitions, .. } = description;
    TopicInfo { topic, partitions: partitions.len() as u32, messages, bytes: Some(bytes) }
}

fn groups(log: &ReadOnlyLog, topic: &TopicName) -> Result<Vec<GroupDescription>> {
    // Read progress before the ends, so that no group seems to be ahead of its partition.
    let saved = lag::saved(&SystemDisk, &log.groups, topic)?;
    let partitions = partitions(&log.topics.join(topic.as_str()))?.unwrap_or_default();
    let described = |file: GroupFile| GroupDescription::new(file.group, None, &file.finished, &partitions);
    saved.into_iter().map(described).collect()
}

fn describe(log: &ReadOnlyLog, file: TopicFile) -> Result<TopicDescription> {
    let (folder, groups) = (log.topics.join(file.topic.as_str()), groups(log, &file.topic)?);
    let partition = |number| {
        let extents = FileExtents::open(&folder, number);
        let directory = extents.directory();
        let bases = segment::list(&SystemDisk, directory)?;
        let finished = bases.iter().rev().skip(1);
        let bytes = finished.map(|base| match durable::file_bytes(&SystemDisk, &segment::path(directory, *base)) {
            // Retention removed it meanwhile.
            Err(error) if durable::is_missing(&error) => Ok(0),
            bytes => bytes,
        });
        let bytes = bytes.sum::<Result<u64>>()?;
        let start = bases.first().copied().unwrap_or_default();
        let (end, last_bytes) = Cursor::new(Arc::clone(&extents), 0).seek_end()?;
        Ok(PartitionDescription::new(number, start, end, bytes + last_bytes, bases.len()))
    };
    let partitions = (0..file.partitions).map(partition).collect::<Result<_>>()?;
    Ok(TopicDescription::new(file.topic, file.settings, partitions, groups))
}

struct FileReader {
    topic: TopicName,
    folder: PathBuf,
    /// Creation time of the topic: distinguishes it from a later topic of the same name.
    created: Timestamp,
    lanes: Lanes,
    /// Where to start in partitions that are added later.
    later: u64,
    collected: Vec<StoredMessage>,
}

#[async_trait]
impl TopicReader for FileReader {
    async fn read(&mut self, limit: usize) -> Result<Vec<StoredMessage>> {
        let partitions = self.partitions().await?;
        for number in self.lanes.len() as u32..partitions {
            self.lanes.add(FileExtents::open(&self.folder, number), self.later);
        }
        let collected = collect(&self.topic, &mut self.lanes, &mut self.collected, limit).await;
        if collected.is_err() {
            // If a file is gone because the topic was deleted, report that instead.
            self.partitions().await?;
        }
        collected
    }
}

impl FileReader {
    /// Returns the current number of partitions; fails if the topic was deleted.
    async fn partitions(&self) -> Result<u32> {
        let folder = self.folder.clone();
        let file = blocking(move || TopicFile::read(&SystemDisk, &folder)).await?;
        let file = file.filter(|file| file.created == self.created).ok_or_else(|| topic::deleted(&self.topic))?;
        Ok(file.partitions)
    }
}

/// A partition as its files are at the moment.
#[derive(Debug)]
struct FileExtents {
    number: u32,
    directory: PathBuf,
}

impl FileExtents {
    fn open(topic_folder: &Path, number: u32) -> Arc<dyn Extents> {
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

    fn segment_for(&self, offset: u64) -> Result<Option<ReadableSegment>> {
        // List before reading the size: a segment with a successor in the list has its final size.
        let bases = segment::list(&SystemDisk, &self.directory)?;
        let index = bases.partition_point(|base| *base <= offset).saturating_sub(1);
        let Some(&base_offset) = bases.get(index) else { return Ok(None) };
        let end_state = if index + 1 == bases.len() { EndState::Growing } else { EndState::Final };
        let bytes = durable::file_bytes(&SystemDisk, &segment::path(&self.directory, base_offset))?;
        Ok(Some(ReadableSegment { extent: Extent { base_offset, bytes }, end_state }))
    }

    fn offset_near_time(&self, _time: i64) -> u64 {
        0
    }

    fn position_for(&self, _header: &SegmentHeader, _offset: u64) -> Option<BatchPosition> {
        None
    }

    fn end(&self) -> Option<u64> {
        None
    }
}

/// Runs `work` on a blocking thread.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(|error| Error::new(ErrorKind::Internal, "reading the log failed").with_source(error))?
}
