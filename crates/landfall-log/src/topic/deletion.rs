//! Deletion of a topic: a crash at any point leaves it complete or gone.
//!
//! 1. Rename its folder to a name that no topic can have (`~deleted-0`). From here on the topic is gone.
//! 2. Remove the saved offsets of groups in it. A later topic of the same name starts at offset 0, and old offsets
//!    would make its consumers skip as many messages.
//! 3. Remove the folder.
//!
//! Each step is synced before the next. Such a folder found on opening was left by a crash, and the missing steps are
//! done before anything is read. No topic of that name can have been created since, so the offsets are the old ones.
//! If the folder has no `topic.json` any more, step 2 was done.

use std::path::{Path, PathBuf};

use landfall_core::{Result, TopicName};

use crate::disk::Disk;
use crate::durable::{self, failed, remove_tree, sync_directory};
use crate::topic::file::TopicFile;

/// Prefix of the folder names of deleted topics, before a number.
const PREFIX: &str = "~deleted-";

/// Step 1: renames the folder of topic `name` in `topics` and returns its new path.
pub(crate) fn begin(disk: &dyn Disk, topics: &Path, name: &TopicName) -> Result<PathBuf> {
    let used = durable::list(disk, topics)?;
    let is_free = |name: &String| used.binary_search(name).is_err();
    // There are more candidates than names in use.
    let free = (0..=used.len()).map(|number| format!("{PREFIX}{number}")).find(is_free).unwrap_or_default();
    let (from, to) = (topics.join(name.as_str()), topics.join(free));
    disk.rename(&from, &to).map_err(failed("rename", &from))?;
    sync_directory(disk, topics)?;
    Ok(to)
}

/// Completes every deletion that a crash interrupted.
pub(crate) fn resume(disk: &dyn Disk, topics: &Path, groups: &Path) -> Result<()> {
    for name in durable::list(disk, topics)?.iter().filter(|name| name.starts_with(PREFIX)) {
        let folder = topics.join(name);
        if let Some(file) = TopicFile::read(disk, &folder)? {
            // The crash may have come before the new name was synced.
            sync_directory(disk, topics)?;
            forget_groups(disk, groups, &file.topic)?;
            tracing::warn!(topic = %file.topic, "completed an interrupted deletion of a topic");
        }
        remove_tree(disk, &folder)?;
    }
    Ok(())
}

/// Step 2, on disk: removes the progress of each group in `topic`.
pub(crate) fn forget_groups(disk: &dyn Disk, groups: &Path, topic: &TopicName) -> Result<()> {
    for group in durable::list(disk, groups)? {
        let folder = groups.join(group);
        durable::remove(disk, &folder.join(format!("{topic}.json")))?;
        // Even if the file does not exist: its removal may not be synced, and if it came back it would apply to
        // another topic.
        sync_directory(disk, &folder)?;
    }
    Ok(())
}
