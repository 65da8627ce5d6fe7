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
use crate::lanes::Lanes;
use crate::segment::{self, Extent};
use crate::topic_reader::{collect, no_such_topic};
use crate::verify::{self, Folder, Report};
use crate::{format, group, topic};

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

    /// How many messages of `topic` the group has not finished, as far as its progress is saved.
    pub async fn unfinished(&self, topic: &TopicName, group: &GroupName) -> Result<u64> {
        let (folder, groups) = (self.topics.join(topic.as_str()), self.groups.clone());
        let (topic, group) = (topic.clone(), group.clone());
        blocking(move || {
            let finished: u64 = group::saved(&SystemDisk, &groups, &group, &topic)?.iter().sum();
            let Some(partitions) = topic::partition_count(&SystemDisk, &folder)? else { return Ok(0) };
            Ok(info(&folder, topic, partitions)?.messages.saturating_sub(finished))
        })
        .await
    }

    /// Reads every byte of `topic`, or of all topics, and says what is wrong with them. `progress` is told how many more
    /// bytes of [`ReadOnlyLog::bytes_to_verify`] were read.
    pub async fn verify(
        &self,
        topic: Option<&TopicName>,
        mut progress: impl FnMut(u64) + Send + 'static,
    ) -> Result<Vec<Report>> {
        let (root, topic) = (self.root(), topic.cloned());
        blocking(move || verify::verify(Folder { disk: &SystemDisk, root: &root }, topic.as_ref(), &mut progress)).await
    }

    /// How much [`ReadOnlyLog::verify`] has to read; about, if somebody is writing.
    pub async fn bytes_to_verify(&self, topic: Option<&TopicName>) -> Result<u64> {
        let (root, topic) = (self.root(), topic.cloned());
        blocking(move || verify::bytes_to_read(Folder { disk: &SystemDisk, root: &root }, topic.as_ref())).await
    }

    fn root(&self) -> PathBuf {
        self.topics.parent().unwrap_or(Path::new(".")).to_owned()
    }

    /// Reads `topic`; later reads see what was written in the meantime.
    pub async fn read(&self, topic: &TopicName, from: StartAt) -> Result<Box<dyn TopicReader>> {
        let folder = self.topics.join(topic.as_str());
        let name = topic.clone();
        blocking(move || {
            let Some(partitions) = topic::partition_count(&SystemDisk, &folder)? else {
                return Err(no_such_topic(&name));
            };
            let mut lanes = Lanes::default();
            for extents in (0..partitions).map(|number| FileExtents::of(&folder, number)) {
                let offset = match from {
                    StartAt::Beginning => 0,
                    StartAt::Offset(offset) => offset,
                    StartAt::End => Cursor::new(Arc::clone(&extents), 0).seek_end()?.0,
                };
                lanes.add(extents, offset);
            }
            // What is in a partition that is added later was all published later.
            let later = if let StartAt::Offset(offset) = from { offset } else { 0 };
            Ok(Box::new(FileReader { topic: name, folder, lanes, later, collected: Vec::new() }) as _)
        })
        .await
    }
}

fn info(folder: &Path, topic: TopicName, partitions: u32) -> Result<TopicInfo> {
    let (mut messages, mut bytes) = (0, 0);
    for number in 0..partitions {
        let extents = FileExtents::of(folder, number);
        let segments = segment::list(&SystemDisk, extents.directory())?;
        for base_offset in segments.iter().rev().skip(1) {
            bytes += file_bytes(&segment::path(extents.directory(), *base_offset))?;
        }
        let (end, last_bytes) = Cursor::new(Arc::clone(&extents), 0).seek_end()?;
        messages += end;
        bytes += last_bytes;
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
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(|error| Error::new(ErrorKind::Internal, "reading the log failed").with_source(error))?
}
