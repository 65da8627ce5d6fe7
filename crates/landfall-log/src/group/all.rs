//! Every group of an open log.

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
    /// Reads every group under `folder`, and refuses one that has finished more than `topics` hold: messages that
    /// were acknowledged are missing, and going on would skip as many new ones.
    pub(crate) fn recover(
        disk: Arc<dyn Disk>,
        folder: PathBuf,
        topics: &Topics,
        session_timeout: Duration,
    ) -> Result<Self> {
        let mut groups = HashMap::new();
        // A process may have died before it could sync the name of a group's folder, which is taken for durable.
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

    /// `group` on `topic`; one that was never seen has finished nothing.
    pub(crate) fn get(&self, group: &GroupName, topic: &TopicName) -> Arc<Group> {
        let mut groups = self.groups();
        let found = groups.entry((group.clone(), topic.clone())).or_insert_with(|| {
            let file = GroupFile::new(group, topic, Vec::new());
            Arc::new(Group::new(Arc::clone(&self.disk), &self.folder, file, false, self.session_timeout))
        });
        Arc::clone(found)
    }

    /// The groups on `topic`, by name.
    pub(crate) fn of_topic(&self, topic: &TopicName) -> Vec<Arc<Group>> {
        let is_wanted = |group: &&Arc<Group>| group.topic() == topic && group.exists();
        let mut found: Vec<_> = self.groups().values().filter(is_wanted).cloned().collect();
        found.sort_unstable_by(|one, other| one.name().cmp(other.name()));
        found
    }

    /// Forgets how far every group has come in `topic`, because it was deleted. Members find that out at once. Blocks.
    pub(crate) fn forget(&self, topic: &TopicName) -> Result<()> {
        let forgotten: Vec<_> = self.groups().extract_if(|(_, of), _| of == topic).map(|(_, group)| group).collect();
        // Before their files are removed, so that nobody writes them again.
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
    /// Forgets how far `group` has come in `topic`, durably: if it comes again, it starts at the beginning. Nothing
    /// happens if there is no such group.
    ///
    /// Refused as `Conflict` while it has members. After any other error the group is gone, but may be back when
    /// the log is opened again; calling this again tries again.
    pub async fn delete_group(&self, topic: &TopicName, group: &GroupName) -> Result<()> {
        let found = self.every_group().get(group, topic);
        found.delete()?;
        self.flusher().save_now(found).await
    }
}
