//! The topics of an open log, in memory. [`crate::topic::admin`] changes them on disk.

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

/// Lists the topics under `folder`, sorted by name. Ignores invalid names, and folders without `topic.json`.
pub(crate) fn list(disk: &dyn Disk, folder: &Path) -> Result<Vec<TopicFile>> {
    let mut topics = Vec::new();
    for name in durable::list(disk, folder)? {
        let Ok(name) = TopicName::new(name) else { continue };
        let topic_folder = folder.join(name.as_str());
        let Some(file) = TopicFile::read(disk, &topic_folder)? else { continue };
        if file.topic != name {
            let sentence = format!("it describes topic {}, but its folder has another name", file.topic);
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

/// The error for an operation on a topic after its deletion.
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
    /// Round-robin counter for keyless batches.
    round_robin: AtomicU32,
}

#[derive(Debug)]
struct State {
    file: TopicFile,
    partitions: Arc<[Arc<Partition>]>,
    is_deleted: bool,
}

impl Topic {
    /// Opens the topic that `file` describes; `open` recovers each partition.
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
        Ok(Self { disk: Arc::clone(disk), folder, state, progress, round_robin: AtomicU32::new(0) })
    }

    /// The current partitions; their number only grows.
    pub(crate) fn partitions(&self) -> Arc<[Arc<Partition>]> {
        Arc::clone(&self.state().partitions)
    }

    /// A snapshot of the topic's partitions, to route a whole batch.
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

    /// The content of `topic.json`.
    pub(crate) fn file(&self) -> TopicFile {
        self.state().file.clone()
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.state().is_deleted
    }

    /// Notified whenever there are new messages or partitions, or the topic is deleted.
    pub(crate) fn progress(&self) -> watch::Receiver<()> {
        self.progress.subscribe()
    }

    /// Applies a changed `topic.json`; additional partitions are empty.
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

    /// Stops all writes to the topic and wakes its readers, which then report the deletion.
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
            // Retention may move the start past an end that was read earlier.
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

/// A topic and its partitions at one moment: one batch is routed with it, even if the topic grows meanwhile.
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

    /// Whether a message that the topic already holds is not stored again.
    pub(crate) fn deduplicates(&self) -> bool {
        self.deduplicates
    }

    /// Returns the partition for the next batch of keyless messages, round-robin.
    pub(crate) fn next_round_robin(&self) -> u32 {
        self.topic.round_robin.fetch_add(1, Ordering::Relaxed) % self.partitions.len() as u32
    }
}

/// All topics of an open log.
#[derive(Debug)]
pub(crate) struct Topics {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    by_name: RwLock<BTreeMap<TopicName, Arc<Topic>>>,
    created: watch::Sender<()>,
}

impl Topics {
    /// Opens and recovers every topic under `folder`.
    pub(crate) fn recover(disk: Arc<dyn Disk>, folder: PathBuf) -> Result<Self> {
        let mut by_name = BTreeMap::new();
        for file in list(&*disk, &folder)? {
            let (name, topic_folder) = (file.topic.clone(), folder.join(file.topic.as_str()));
            // A process may have died before it synced `topic.json`, and messages are going to rely on it.
            durable::sync_directory(&*disk, &topic_folder)?;
            let topic = Topic::open(&disk, topic_folder.clone(), file, |directory, number| {
                if !durable::is_directory(&*disk, directory)? {
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

    /// Notified whenever a topic is created or deleted.
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
