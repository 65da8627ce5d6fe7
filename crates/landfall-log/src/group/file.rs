//! The saved progress of a group: one small JSON file per group and topic, replaced atomically.
//!
//! It carries a checksum, because an offset that is too high would skip messages.

use std::path::{Path, PathBuf};

use landfall_core::{GroupName, Result, TopicName};
use serde::{Deserialize, Serialize};

use crate::disk::Disk;
use crate::durable::{self, create_directory, damaged};

/// The progress of a group in a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupFile {
    pub(crate) group: GroupName,
    pub(crate) topic: TopicName,
    /// By partition: everything below is finished. A partition beyond the end of the list has no progress.
    pub(crate) finished: Vec<u64>,
    checksum: u32,
}

impl GroupFile {
    pub(crate) fn new(group: &GroupName, topic: &TopicName, finished: Vec<u64>) -> Self {
        let mut file = Self { group: group.clone(), topic: topic.clone(), finished, checksum: 0 };
        file.checksum = file.computed_checksum();
        file
    }

    /// Its path under `folder`.
    pub(crate) fn path(folder: &Path, group: &GroupName, topic: &TopicName) -> PathBuf {
        folder.join(group.as_str()).join(format!("{topic}.json"))
    }

    /// Reads the file at `path`; `None` if it does not exist.
    pub(crate) fn read(disk: &dyn Disk, path: &Path) -> Result<Option<Self>> {
        durable::read(disk, path)?.map(|text| Self::parse(&text, path)).transpose()
    }

    /// Parses `text`, the content of the file at `path`; refuses it if it is damaged.
    pub(crate) fn parse(text: &[u8], path: &Path) -> Result<Self> {
        let file: Self = serde_json::from_slice(text)
            .map_err(|error| damaged(path, 0, "the file does not hold a group's offsets").with_source(error))?;
        if file.checksum != file.computed_checksum() {
            return Err(damaged(path, 0, "the checksum is wrong"));
        }
        Ok(file)
    }

    /// Writes it to `path` durably. Blocks.
    pub(crate) fn write(&self, disk: &dyn Disk, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent()
            && !durable::is_directory(disk, folder)?
        {
            create_directory(disk, folder)?;
        }
        durable::replace(disk, path, serde_json::json!(self).to_string().as_bytes())
    }

    fn computed_checksum(&self) -> u32 {
        let names = crc32c::crc32c(format!("{}/{}", self.group, self.topic).as_bytes());
        self.finished.iter().fold(names, |sum, offset| crc32c::crc32c_append(sum, &offset.to_le_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use landfall_core::ErrorKind;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn file_reads_back_unchanged_and_changed_offsets_are_refused(
            finished in proptest::collection::vec(any::<u64>(), 1..6),
            at in any::<proptest::sample::Index>(),
            bit in 0..64,
        ) {
            let (group, topic) = (GroupName::new("stock").unwrap(), TopicName::new("orders").unwrap());
            let mut file = GroupFile::new(&group, &topic, finished);
            let text = |file: &GroupFile| serde_json::json!(file).to_string();
            prop_assert_eq!(&GroupFile::parse(text(&file).as_bytes(), Path::new("f")).unwrap(), &file);
            let at = at.index(file.finished.len());
            file.finished[at] ^= 1_u64 << bit;
            let error = GroupFile::parse(text(&file).as_bytes(), Path::new("f")).unwrap_err();
            prop_assert_eq!(error.kind(), ErrorKind::Corrupt);
        }

        #[test]
        fn arbitrary_bytes_are_an_error_and_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(GroupFile::parse(&bytes, Path::new("f")).is_err());
        }
    }
}
