//! All consumer groups of an open log.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use landfall_core::{Error, ErrorKind, GroupName, Result, TopicName};

use crate::disk::Disk;
use crate::durable;
use crate::group::file::GroupFile;
use crate::group::progress::Group;
use crate::log::Log;
use crate::topic::deletion;
use crate::topic::open::Topics;

#[derive(Debug)]
pub(crate) struct Groups {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    session_timeout: Duration,
    groups: Mutex<HashMap<(GroupName, TopicName), Arc<Group>>>,
}

impl Groups {
    /// Reads every group under `folder`. Refuses a group whose progress exceeds what `topics` hold: acknowledged
    /// messages are missing, and continuing would skip as many new ones.
    pub(crate) fn recover(
        disk: Arc<dyn Disk>,
        folder: PathBuf,
        topics: &Topics,
        session_timeout: Duration,
    ) -> Result<Self> {
        let mut groups = HashMap::new();
        // A process may have died before it synced the name of a group's folder, which is assumed durable.
        durable::sync_directory(&*disk, &folder)?;
        for name in durable::list(&*disk, &folder)? {
            for file in durable::list(&*disk, &folder.join(&name))? {
                if !file.ends_with(".json") {
                    continue;
                }
                let path = folder.join(&name).join(&file);
                let Some(file) = GroupFile::read(&*disk, &path)? else { continue };
                check_against(topics, &file, &path)?;
                let names = (file.group.clone(), file.topic.clone());
                groups.insert(names, Arc::new(Group::new(Arc::clone(&disk), &folder, file, true, session_timeout)));
            }
        }
        Ok(Self { disk, folder, session_timeout, groups: Mutex::new(groups) })
    }

    /// Returns `group` on `topic`, created without progress if it is new.
    pub(crate) fn get(&self, group: &GroupName, topic: &TopicName) -> Arc<Group> {
        let mut groups = self.groups();
        let found = groups.entry((group.clone(), topic.clone())).or_insert_with(|| {
            let file = GroupFile::new(group, topic, Vec::new());
            Arc::new(Group::new(Arc::clone(&self.disk), &self.folder, file, false, self.session_timeout))
        });
        Arc::clone(found)
    }

    /// Returns the groups on `topic`, sorted by name.
    pub(crate) fn for_topic(&self, topic: &TopicName) -> Vec<Arc<Group>> {
        let is_wanted = |group: &&Arc<Group>| group.topic() == topic && group.exists();
        let mut found: Vec<_> = self.groups().values().filter(is_wanted).cloned().collect();
        found.sort_unstable_by(|one, other| one.name().cmp(other.name()));
        found
    }

    /// Drops the progress of every group in a deleted `topic`. Members notice at once. Blocks.
    pub(crate) fn forget(&self, topic: &TopicName) -> Result<()> {
        let forgotten: Vec<_> = self.groups().extract_if(|(_, of), _| of == topic).map(|(_, group)| group).collect();
        // Before the files are removed, so that no pending save writes them again.
        forgotten.iter().for_each(|group| group.discard());
        deletion::forget_groups(&*self.disk, &self.folder, topic)
    }

    fn groups(&self) -> MutexGuard<'_, HashMap<(GroupName, TopicName), Arc<Group>>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check_against(topics: &Topics, file: &GroupFile, path: &Path) -> Result<()> {
    let topic = topics.get(&file.topic);
    for (partition, &finished) in file.finished.iter().enumerate() {
        let found = topic.as_ref().and_then(|topic| topic.partitions().get(partition).cloned());
        let end = found.map_or(0, |found| found.next_offset());
        if finished > end {
            let GroupFile { group, topic, .. } = file;
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

impl Log {
    /// Deletes the progress of `group` in `topic` durably: if the group returns, it starts at the beginning. Succeeds
    /// if there is no such group.
    ///
    /// `Conflict` while it has members. After any other error the group is gone, but reopening the log may restore it;
    /// call this again to retry.
    pub async fn delete_group(&self, topic: &TopicName, group: &GroupName) -> Result<()> {
        let found = self.all_groups().get(group, topic);
        found.delete()?;
        self.flusher().save_now(found).await
    }
}
