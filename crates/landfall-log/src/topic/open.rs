//! Topics of an open log: what is known of each in memory. [`crate::topic::admin`] has the steps that change them on disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use landfall_core::{Error, ErrorKind, Result, TopicInfo, TopicName};
use tokio::sync::watch;

use crate::disk::Disk;
use crate::durable::{self, damaged};
use crate::storage::partition::{Location, Partition, Recovered};
use crate::storage::recovery::recover;
use crate::topic::file::{self as topic_file, TopicFile};
use crate::topic::settings::TopicSettings;

/// The topics under `folder`, by name. What is called like no topic is none; what holds no `topic.json` neither.
pub(crate) fn list(disk: &dyn Disk, folder: &Path) -> Result<Vec<TopicFile>> {
    let mut topics = Vec::new();
    for name in durable::list(disk, folder)? {
        let Ok(name) = TopicName::new(name) else { continue };
        let topic_folder = folder.join(name.as_str());
        let Some(file) = TopicFile::read(disk, &topic_folder)? else { continue };
        if file.topic != name {
            let sentence = format!("it describes topic {}, not the one that its folder is named for", file.topic);
            return Err(damaged(&topic_folder.join(topic_file::NAME), 0, sentence));
        }
        topics.push(file);
    }
    topics.sort_unstable_by(|one, other| one.topic.cmp(&other.topic));
    Ok(topics)
}

pub(crate) fn partition_folder(topic_folder: &Path, partition: u32) -> PathBuf {
    topic_folder.join(partition.to_string())
}

/// The error for what was asked of a topic after somebody deleted it.
pub(crate) fn deleted(topic: &TopicName) -> Error {
    Error::new(ErrorKind::NotFound, format!("topic {topic} was deleted, with all its messages"))
}

/// One topic of an open log.
#[derive(Debug)]
pub(crate) struct Topic {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    state: RwLock<State>,
    progress: Arc<watch::Sender<()>>,
    /// Where the next keyless batch goes.
    turn: AtomicU32,
}

#[derive(Debug)]
struct State {
    file: TopicFile,
    partitions: Arc<[Arc<Partition>]>,
    is_deleted: bool,
}

impl Topic {
    /// Opens the topic that `file` describes, with each partition as `open` finds it.
    pub(crate) fn open(
        disk: &Arc<dyn Disk>,
        folder: PathBuf,
        file: TopicFile,
        open: impl Fn(&Path, u32) -> Result<Recovered>,
    ) -> Result<Self> {
        let progress = Arc::new(watch::Sender::new(()));
        let partition = |number| {
            let directory = partition_folder(&folder, number);
            let recovered = open(&directory, number)?;
            let (disk, topic, progress) = (Arc::clone(disk), file.topic.clone(), Arc::clone(&progress));
            Ok(Arc::new(Partition::new(Location { disk, topic, number, directory, progress }, recovered)))
        };
        let partitions = (0..file.partitions).map(partition).collect::<Result<_>>()?;
        let state = RwLock::new(State { file, partitions, is_deleted: false });
        Ok(Self { disk: Arc::clone(disk), folder, state, progress, turn: AtomicU32::new(0) })
    }

    /// The partitions as they are now; a topic can get more, and never has fewer.
    pub(crate) fn partitions(&self) -> Arc<[Arc<Partition>]> {
        Arc::clone(&self.state().partitions)
    }

    /// The topic with the partitions that it has now, for many messages at once.
    pub(crate) fn layout(self: &Arc<Self>) -> Layout {
        let state = self.state();
        let (partitions, deduplicates) = (Arc::clone(&state.partitions), state.file.settings.deduplicate);
        Layout { topic: Arc::clone(self), partitions, deduplicates }
    }

    pub(crate) fn name(&self) -> TopicName {
        self.state().file.topic.clone()
    }

    pub(crate) fn settings(&self) -> TopicSettings {
        self.state().file.settings
    }

    /// What `topic.json` holds.
    pub(crate) fn file(&self) -> TopicFile {
        self.state().file.clone()
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.state().is_deleted
    }

    /// Changes whenever there is more to read, or other partitions to read from, or the topic is deleted.
    pub(crate) fn progress(&self) -> watch::Receiver<()> {
        self.progress.subscribe()
    }

    /// Takes on what `topic.json` now holds, with new, empty partitions where there are more.
    pub(crate) fn change(&self, file: TopicFile) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let added = (state.partitions.len() as u32..file.partitions).map(|number| {
            let (disk, directory) = (Arc::clone(&self.disk), partition_folder(&self.folder, number));
            let (topic, progress) = (file.topic.clone(), Arc::clone(&self.progress));
            Arc::new(Partition::new(Location { disk, topic, number, directory, progress }, Recovered::empty()))
        });
        state.partitions = state.partitions.iter().cloned().chain(added).collect();
        state.file = file;
        drop(state);
        self.progress.send_replace(());
    }

    /// From now on nothing more may be written to it, and whoever reads it is told why there is nothing.
    pub(crate) fn set_deleted(&self, is_deleted: bool) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.is_deleted = is_deleted;
        state.partitions.iter().for_each(|partition| partition.set_deleted(is_deleted));
        drop(state);
        self.progress.send_replace(());
    }

    pub(crate) fn info(&self) -> TopicInfo {
        let partitions = self.partitions();
        TopicInfo {
            topic: self.state().file.topic.clone(),
            partitions: partitions.len() as u32,
            // Retention may move the start beyond an end that was read before it.
            messages: partitions
                .iter()
                .map(|partition| partition.next_offset().saturating_sub(partition.start_offset()))
                .sum(),
            bytes: Some(partitions.iter().map(|partition| partition.bytes()).sum()),
        }
    }

    fn state(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A topic and its partitions at one moment: what one batch is spread over, even if the topic grows meanwhile.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    topic: Arc<Topic>,
    partitions: Arc<[Arc<Partition>]>,
    deduplicates: bool,
}

impl Layout {
    pub(crate) fn partitions(&self) -> &[Arc<Partition>] {
        &self.partitions
    }

    /// Whether a message that the topic holds already is not stored again.
    pub(crate) fn deduplicates(&self) -> bool {
        self.deduplicates
    }

    /// The partition for the next batch of keyless messages: each in turn.
    pub(crate) fn next_turn(&self) -> u32 {
        self.topic.turn.fetch_add(1, Ordering::Relaxed) % self.partitions.len() as u32
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
        for file in list(&*disk, &folder)? {
            let (name, topic_folder) = (file.topic.clone(), folder.join(file.topic.as_str()));
            // A process may have died before it could sync what it says now, and messages are going to rely on it.
            durable::sync_directory(&*disk, &topic_folder)?;
            let topic = Topic::open(&disk, topic_folder.clone(), file, |directory, number| {
                if !durable::is_directory(&*disk, directory) {
                    let missing = format!("the folder of partition {number} is missing");
                    return Err(damaged(&topic_folder.join(topic_file::NAME), 0, missing));
                }
                recover(&disk, directory, number)
            })?;
            by_name.insert(name, Arc::new(topic));
        }
        Ok(Self { disk, folder, by_name: RwLock::new(by_name), created: watch::Sender::new(()) })
    }

    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn get(&self, name: &TopicName) -> Option<Arc<Topic>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Topic>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Changes whenever a topic has come into being or is gone.
    pub(crate) fn created(&self) -> watch::Receiver<()> {
        self.created.subscribe()
    }

    pub(crate) fn insert(&self, name: TopicName, topic: Arc<Topic>) {
        self.by_name.write().unwrap_or_else(PoisonError::into_inner).insert(name, topic);
        self.created.send_replace(());
    }

    pub(crate) fn remove(&self, name: &TopicName) {
        self.by_name.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        self.created.send_replace(());
    }
}
