//! How far each group has come in each topic: the offset below which everything is finished, per partition.
//!
//! One small JSON file per group and topic, replaced as a whole. It carries a checksum, because a wrong number that
//! is too high would skip messages.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use landfall_core::{Error, ErrorKind, GroupName, Result, TopicName};
use serde::{Deserialize, Serialize};

use crate::deletion;
use crate::disk::Disk;
use crate::durable::{self, create_directory, damaged};
use crate::members::Members;
use crate::topic::Topics;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    group: GroupName,
    topic: TopicName,
    finished: Vec<u64>,
    checksum: u32,
}

impl Document {
    fn new(group: &GroupName, topic: &TopicName, finished: Vec<u64>) -> Self {
        let mut document = Self { group: group.clone(), topic: topic.clone(), finished, checksum: 0 };
        document.checksum = document.computed_checksum();
        document
    }

    fn computed_checksum(&self) -> u32 {
        let names = crc32c::crc32c(format!("{}/{}", self.group, self.topic).as_bytes());
        self.finished.iter().fold(names, |sum, offset| crc32c::crc32c_append(sum, &offset.to_le_bytes()))
    }

    /// What stands in the file at `path`; `None` if there is none.
    fn read(disk: &dyn Disk, path: &Path) -> Result<Option<Self>> {
        let Some(text) = durable::read(disk, path)? else { return Ok(None) };
        let document: Self = serde_json::from_slice(&text)
            .map_err(|error| damaged(path, 0, "it does not hold a group's offsets").with_source(error))?;
        if document.checksum != document.computed_checksum() {
            return Err(damaged(path, 0, "its checksum is wrong"));
        }
        Ok(Some(document))
    }
}

/// Every group of an open log.
#[derive(Debug)]
pub(crate) struct Groups {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    offsets: Mutex<HashMap<(GroupName, TopicName), Arc<Offsets>>>,
}

impl Groups {
    /// Reads every group under `folder`, and refuses one that has finished more than `topics` hold: messages that
    /// were acknowledged are missing, and going on would skip as many new ones.
    pub(crate) fn recover(disk: Arc<dyn Disk>, folder: PathBuf, topics: &Topics) -> Result<Self> {
        let mut offsets = HashMap::new();
        for group in durable::list(&*disk, &folder)? {
            for file in durable::list(&*disk, &folder.join(&group))? {
                let path = folder.join(&group).join(&file);
                if !file.ends_with(".json") {
                    continue;
                }
                let Some(document) = Document::read(&*disk, &path)? else { continue };
                check_against(topics, &document, &path)?;
                let Document { group, topic, finished, .. } = document;
                let progress = Offsets::new(Arc::clone(&disk), group.clone(), topic.clone(), path, finished);
                offsets.insert((group, topic), Arc::new(progress));
            }
        }
        Ok(Self { disk, folder, offsets: Mutex::new(offsets) })
    }

    /// The offsets of `group` in `topic`; a group that was never seen has finished nothing.
    pub(crate) fn offsets(&self, group: &GroupName, topic: &TopicName) -> Arc<Offsets> {
        let mut offsets = self.offsets.lock().unwrap_or_else(PoisonError::into_inner);
        let found = offsets.entry((group.clone(), topic.clone())).or_insert_with(|| {
            let path = path(&self.folder, group, topic);
            Arc::new(Offsets::new(Arc::clone(&self.disk), group.clone(), topic.clone(), path, Vec::new()))
        });
        Arc::clone(found)
    }

    /// Forgets how far every group has come in `topic`, because it was deleted. Members find that out at once. Blocks.
    pub(crate) fn forget(&self, topic: &TopicName) -> Result<()> {
        let mut offsets = self.offsets.lock().unwrap_or_else(PoisonError::into_inner);
        let forgotten: Vec<_> = offsets.extract_if(|(_, of), _| of == topic).map(|(_, offsets)| offsets).collect();
        drop(offsets);
        // Before their files are removed, so that nobody writes them again.
        forgotten.iter().for_each(|offsets| offsets.discard());
        deletion::forget_groups(&*self.disk, &self.folder, topic)
    }
}

/// How far `group` has come in `topic`, as it is written down under `folder`; empty if it never finished anything.
pub(crate) fn saved(disk: &dyn Disk, folder: &Path, group: &GroupName, topic: &TopicName) -> Result<Vec<u64>> {
    let document = Document::read(disk, &path(folder, group, topic))?;
    Ok(document.map(|document| document.finished).unwrap_or_default())
}

fn path(folder: &Path, group: &GroupName, topic: &TopicName) -> PathBuf {
    folder.join(group.as_str()).join(format!("{topic}.json"))
}

fn check_against(topics: &Topics, document: &Document, path: &Path) -> Result<()> {
    let topic = topics.get(&document.topic);
    for (partition, &finished) in document.finished.iter().enumerate() {
        let found = topic.as_ref().and_then(|topic| topic.partitions().get(partition).cloned());
        let end = found.map_or(0, |found| found.next_offset());
        if finished > end {
            let Document { group, topic, .. } = document;
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!(
                    "partition {partition} of topic {topic} ends at offset {end}, but {} says that group {group} has \
                     finished everything before {finished}: stored messages are missing",
                    path.display()
                ),
            ));
        }
    }
    Ok(())
}

/// The progress of one group in one topic.
#[derive(Debug)]
pub(crate) struct Offsets {
    disk: Arc<dyn Disk>,
    group: GroupName,
    topic: TopicName,
    path: PathBuf,
    members: Arc<Members>,
    state: Mutex<State>,
    /// Held while the file is being written.
    saving: Mutex<()>,
}

#[derive(Debug)]
struct State {
    /// By partition; a partition that is not in the list has finished nothing.
    finished: Vec<u64>,
    is_unsaved: bool,
    /// The topic was deleted: nothing counts any more, and nothing may be written.
    is_discarded: bool,
}

impl Offsets {
    fn new(disk: Arc<dyn Disk>, group: GroupName, topic: TopicName, path: PathBuf, finished: Vec<u64>) -> Self {
        let state = Mutex::new(State { finished, is_unsaved: false, is_discarded: false });
        Self { disk, group, topic, path, members: Arc::default(), state, saving: Mutex::default() }
    }

    pub(crate) fn members(&self) -> &Arc<Members> {
        &self.members
    }

    /// Everything in `partition` below this is finished.
    pub(crate) fn finished(&self, partition: u32) -> u64 {
        self.state().finished.get(partition as usize).copied().unwrap_or_default()
    }

    /// Everything in `partition` below `offset` is finished. Whether somebody must now see to it that it is saved.
    pub(crate) fn advance(&self, partition: u32, offset: u64) -> bool {
        let (mut state, partition) = (self.state(), partition as usize);
        if state.finished.len() <= partition {
            state.finished.resize(partition + 1, 0);
        }
        if offset <= state.finished[partition] || state.is_discarded {
            return false;
        }
        state.finished[partition] = offset;
        !std::mem::replace(&mut state.is_unsaved, true)
    }

    /// Makes the progress durable, if there was any. Blocks.
    pub(crate) fn save(&self) -> Result<()> {
        let _saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let finished = {
            let mut state = self.state();
            if !std::mem::take(&mut state.is_unsaved) || state.is_discarded {
                return Ok(());
            }
            state.finished.clone()
        };
        let document = Document::new(&self.group, &self.topic, finished);
        let saved = self.write(&document);
        if saved.is_err() {
            self.state().is_unsaved = true;
        }
        saved
    }

    /// Whether the topic was deleted.
    pub(crate) fn is_discarded(&self) -> bool {
        self.state().is_discarded
    }

    /// The topic was deleted. Once this returns nothing is written any more.
    fn discard(&self) {
        self.state().is_discarded = true;
        // Whoever is writing finishes first.
        drop(self.saving.lock().unwrap_or_else(PoisonError::into_inner));
        self.members.wake();
    }

    fn write(&self, document: &Document) -> Result<()> {
        if let Some(folder) = self.path.parent()
            && !durable::is_directory(&*self.disk, folder)
        {
            create_directory(&*self.disk, folder)?;
        }
        durable::replace(&*self.disk, &self.path, serde_json::json!(document).to_string().as_bytes())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
