//! How a topic is deleted, so that a crash at any point leaves it whole or gone.
//!
//! 1. Its folder gets a name that no topic can have (`~deleted-0`). From here on it is gone.
//! 2. The offsets that groups have saved in it are removed: a topic of the same name that comes later begins at
//!    offset 0, and old offsets would make its consumers skip as many messages.
//! 3. The folder is removed.
//!
//! Each step is synced before the next. A folder that is still there when a log is opened was left by a crash, and the
//! steps that are missing are done before anything is read: nobody can have created a topic of that name again, so
//! that the offsets in question are the old ones. If the folder has lost its `topic.json`, step 2 was done.

use std::path::{Path, PathBuf};

use landfall_core::{Result, TopicName};

use crate::disk::Disk;
use crate::durable::{self, failed, remove_tree, sync_directory};
use crate::topic::file::TopicFile;

/// What the folder of a deleted topic is called, before a number.
const PREFIX: &str = "~deleted-";

/// Step 1: takes the folder of topic `name` out of `topics`. Answers with what it is called now.
pub(crate) fn begin(disk: &dyn Disk, topics: &Path, name: &TopicName) -> Result<PathBuf> {
    let taken = durable::list(disk, topics)?;
    let is_free = |name: &String| taken.binary_search(name).is_err();
    // There are fewer names than numbers.
    let free = (0..=taken.len()).map(|number| format!("{PREFIX}{number}")).find(is_free).unwrap_or_default();
    let (from, to) = (topics.join(name.as_str()), topics.join(free));
    disk.rename(&from, &to).map_err(failed("rename", &from))?;
    sync_directory(disk, topics)?;
    Ok(to)
}

/// Does what is missing of every deletion that a crash interrupted.
pub(crate) fn resume(disk: &dyn Disk, topics: &Path, groups: &Path) -> Result<()> {
    for name in durable::list(disk, topics)?.iter().filter(|name| name.starts_with(PREFIX)) {
        let folder = topics.join(name);
        if let Some(file) = TopicFile::read(disk, &folder)? {
            // The crash may have come before its new name was synced.
            sync_directory(disk, topics)?;
            forget_groups(disk, groups, &file.topic)?;
            tracing::warn!(topic = %file.topic, "finished the deletion of a topic that a crash had interrupted");
        }
        remove_tree(disk, &folder)?;
    }
    Ok(())
}

/// Step 2, on disk: removes how far each group has come in `topic`.
pub(crate) fn forget_groups(disk: &dyn Disk, groups: &Path, topic: &TopicName) -> Result<()> {
    for group in durable::list(disk, groups)? {
        let folder = groups.join(group);
        durable::remove(disk, &folder.join(format!("{topic}.json")))?;
        // Also if it is not there: a process may have died before it could sync that, and a file that came back would
        // speak of another topic.
        sync_directory(disk, &folder)?;
    }
    Ok(())
}
