//! `topic.json`: the file that makes a folder a topic.
//!
//! Written last when a topic is created, and replaced last when it grows. A folder without it was left by an
//! interrupted creation, and a partition beyond its count by an interrupted growth. Neither was ever acknowledged, and
//! both are emptied before reuse.

use std::path::Path;

use landfall_core::{Error, ErrorKind, Result, Timestamp, TopicName};
use serde::{Deserialize, Serialize};

use crate::disk::Disk;
use crate::durable::{self, damaged};
use crate::topic::settings::TopicSettings;

pub(crate) const NAME: &str = "topic.json";

/// The description of a topic, without its messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TopicFile {
    /// Also the name of its folder, until it is deleted.
    pub(crate) topic: TopicName,
    /// Distinguishes it from a deleted topic of the same name.
    pub(crate) created: Timestamp,
    pub(crate) partitions: u32,
    pub(crate) settings: TopicSettings,
    /// CRC32C, eight hexadecimal digits, of this object with an empty checksum. Another partition count would map keys
    /// to other partitions, and other settings could remove messages that must be kept.
    checksum: String,
}

impl TopicFile {
    pub(crate) fn new(topic: TopicName, partitions: u32, settings: TopicSettings) -> Self {
        Self { topic, created: Timestamp::now(), partitions, settings, checksum: String::new() }
    }

    /// Reads the file in `folder`; `None` if there is no topic in it.
    pub(crate) fn read(disk: &dyn Disk, folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(NAME);
        let Some(text) = durable::read(disk, &path)? else { return Ok(None) };
        let mut file: Self = serde_json::from_slice(&text)
            .map_err(|error| damaged(&path, 0, "the file does not describe a topic").with_source(error))?;
        let checksum = std::mem::take(&mut file.checksum);
        if checksum != file.computed_checksum()? {
            return Err(damaged(&path, 0, "the checksum is wrong"));
        }
        Ok(Some(file))
    }

    /// Writes the file to `folder` atomically and durably.
    pub(crate) fn write(&self, disk: &dyn Disk, folder: &Path) -> Result<()> {
        let checksum = self.computed_checksum()?;
        let document = Self { checksum, ..self.clone() }.encode()?;
        durable::replace(disk, &folder.join(NAME), &document)
    }

    fn computed_checksum(&self) -> Result<String> {
        // Fixed length, so that the file size does not depend on the creation time.
        Ok(format!("{:08x}", crc32c::crc32c(&self.encode()?)))
    }

    /// Encodes the fields in declaration order, so that the checksum is deterministic.
    fn encode(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self)
            .map_err(|error| Error::new(ErrorKind::Internal, "cannot encode topic.json").with_source(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SystemDisk;

    /// The file as `docs/reference/log-format.md` shows it. Every later build must read it.
    #[test]
    fn file_in_the_reference_is_read_and_written_unchanged() {
        let reference = include_str!("../../../../docs/reference/log-format.md");
        let shown = reference.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(NAME), shown).unwrap();
        let file = TopicFile::read(&SystemDisk, folder.path()).unwrap().unwrap();
        assert_eq!((file.topic.as_str(), file.partitions, file.settings), ("orders", 4, TopicSettings::default()));
        file.write(&SystemDisk, folder.path()).unwrap();
        let written = std::fs::read_to_string(folder.path().join(NAME)).unwrap();
        assert_eq!(written, shown.replace(['\n', ' '], ""));
        assert_eq!(TopicFile::read(&SystemDisk, folder.path()).unwrap(), Some(file));
    }
}
