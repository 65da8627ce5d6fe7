//! Topics: what stands in their folders, and the ones of an open log.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use landfall_core::{Result, TopicInfo, TopicName};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::disk::Disk;
use crate::durable::{self, create_directory, damaged};
use crate::partition::{Location, Partition, Recovered};
use crate::recovery::recover;

/// What `topic.json` holds. It is written last when a topic is created: without it there is no topic.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    partitions: u32,
    /// CRC32C of the number before: another number would send every key elsewhere.
    checksum: u32,
}

/// The number of partitions of the topic in `folder`; `None` if there is no such topic.
pub(crate) fn partition_count(disk: &dyn Disk, folder: &Path) -> Result<Option<u32>> {
    let path = folder.join("topic.json");
    let Some(text) = durable::read(disk, &path)? else { return Ok(None) };
    let description: Description = serde_json::from_slice(&text)
        .map_err(|error| damaged(&path, 0, "it does not describe a topic").with_source(error))?;
    if description.checksum != checksum(description.partitions) {
        return Err(damaged(&path, 0, "its checksum is wrong"));
    }
    Ok(Some(description.partitions))
}

/// The topics under `folder`, by name, with their numbers of partitions.
pub(crate) fn list(disk: &dyn Disk, folder: &Path) -> Result<Vec<(TopicName, u32)>> {
    let mut topics = Vec::new();
    for name in durable::list(disk, folder)? {
        let Ok(name) = TopicName::new(name) else { continue };
        if let Some(partitions) = partition_count(disk, &folder.join(name.as_str()))? {
            topics.push((name, partitions));
        }
    }
    topics.sort_unstable();
    Ok(topics)
}

pub(crate) fn partition_folder(topic_folder: &Path, partition: u32) -> PathBuf {
    topic_folder.join(partition.to_string())
}

fn checksum(partitions: u32) -> u32 {
    crc32c::crc32c(&partitions.to_le_bytes())
}

/// One topic of an open log.
#[derive(Debug)]
pub(crate) struct Topic {
    name: TopicName,
    partitions: Vec<Arc<Partition>>,
    progress: Arc<watch::Sender<()>>,
    /// Where the next keyless batch goes.
    turn: AtomicU32,
}

impl Topic {
    /// Opens the topic in `folder`, with each partition as `open` finds it.
    fn open(
        disk: &Arc<dyn Disk>,
        folder: &Path,
        name: TopicName,
        partitions: u32,
        open: impl Fn(&Path, u32) -> Result<Recovered>,
    ) -> Result<Self> {
        let progress = Arc::new(watch::Sender::new(()));
        let partition = |number| {
            let directory = partition_folder(folder, number);
            let recovered = open(&directory, number)?;
            let (disk, topic, progress) = (Arc::clone(disk), name.clone(), Arc::clone(&progress));
            Ok(Arc::new(Partition::new(Location { disk, topic, number, directory, progress }, recovered)))
        };
        let partitions = (0..partitions).map(partition).collect::<Result<_>>()?;
        Ok(Self { name, partitions, progress, turn: AtomicU32::new(0) })
    }

    pub(crate) fn partitions(&self) -> &[Arc<Partition>] {
        &self.partitions
    }

    /// The partition for the next batch of keyless messages: each in turn.
    pub(crate) fn next_turn(&self) -> u32 {
        self.turn.fetch_add(1, Ordering::Relaxed) % self.partitions.len() as u32
    }

    /// Changes whenever there is more to read.
    pub(crate) fn progress(&self) -> watch::Receiver<()> {
        self.progress.subscribe()
    }

    pub(crate) fn info(&self) -> TopicInfo {
        TopicInfo {
            topic: self.name.clone(),
            partitions: self.partitions.len() as u32,
            messages: self.partitions.iter().map(|partition| partition.next_offset() - partition.start_offset()).sum(),
            bytes: self.partitions.iter().map(|partition| partition.bytes()).sum(),
        }
    }
}

/// Every topic of an open log.
#[derive(Debug)]
pub(crate) struct Topics {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    by_name: RwLock<BTreeMap<TopicName, Arc<Topic>>>,
    created: watch::Sender<()>,
}

impl Topics {
    /// Opens every topic under `folder`, after making sure of what stands in it.
    pub(crate) fn recover(disk: Arc<dyn Disk>, folder: PathBuf) -> Result<Self> {
        let mut by_name = BTreeMap::new();
        for (name, partitions) in list(&*disk, &folder)? {
            let topic_folder = folder.join(name.as_str());
            let topic = Topic::open(&disk, &topic_folder, name.clone(), partitions, |directory, number| {
                if !durable::is_directory(&*disk, directory) {
                    let missing = format!("the folder of partition {number} is missing");
                    return Err(damaged(&topic_folder.join("topic.json"), 0, missing));
                }
                recover(&disk, directory, number)
            })?;
            by_name.insert(name, Arc::new(topic));
        }
        Ok(Self { disk, folder, by_name: RwLock::new(by_name), created: watch::Sender::new(()) })
    }

    pub(crate) fn get(&self, name: &TopicName) -> Option<Arc<Topic>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Topic>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Changes whenever there is a new topic.
    pub(crate) fn created(&self) -> watch::Receiver<()> {
        self.created.subscribe()
    }

    /// The topic `name`, created durably if it is not there. Only the writer's thread may call this. Blocks.
    pub(crate) fn create(&self, name: &TopicName, partitions: u32) -> Result<Arc<Topic>> {
        if let Some(topic) = self.get(name) {
            return Ok(topic);
        }
        let folder = self.folder.join(name.as_str());
        create_directory(&*self.disk, &folder)?;
        for number in 0..partitions {
            create_directory(&*self.disk, &partition_folder(&folder, number))?;
        }
        let description = Description { partitions, checksum: checksum(partitions) };
        let description = serde_json::json!(description).to_string();
        durable::replace(&*self.disk, &folder.join("topic.json"), description.as_bytes())?;
        let topic =
            Arc::new(Topic::open(&self.disk, &folder, name.clone(), partitions, |_, _| Ok(Recovered::empty()))?);
        self.by_name.write().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), Arc::clone(&topic));
        self.created.send_replace(());
        Ok(topic)
    }
}
