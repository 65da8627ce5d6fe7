//! `topic.json`: what makes a folder a topic.
//!
//! It is written last when a topic is created, and replaced last when one grows: a folder without it is what a creation
//! left behind that never finished, and a partition beyond its number is what a growth left behind. Neither was ever
//! answered for, and both are emptied before they are used again.

use std::path::Path;

use landfall_core::{Error, ErrorKind, Result, Timestamp, TopicName};
use serde::{Deserialize, Serialize};

use crate::disk::Disk;
use crate::durable::{self, damaged};
use crate::topic::settings::TopicSettings;

pub(crate) const NAME: &str = "topic.json";

/// What is known about a topic without looking at its messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TopicFile {
    /// Its folder is called so too, until it is deleted.
    pub(crate) topic: TopicName,
    /// Tells it from a topic of the same name that was deleted before.
    pub(crate) created: Timestamp,
    pub(crate) partitions: u32,
    pub(crate) settings: TopicSettings,
    /// CRC32C, eight hexadecimal digits, of this object with an empty text in its place: another number of partitions
    /// would send every key elsewhere, and other settings would remove what somebody wanted to keep.
    checksum: String,
}

impl TopicFile {
    pub(crate) fn new(topic: TopicName, partitions: u32, settings: TopicSettings) -> Self {
        Self { topic, created: Timestamp::now(), partitions, settings, checksum: String::new() }
    }

    /// What stands in `folder`; `None` if there is no topic in it.
    pub(crate) fn read(disk: &dyn Disk, folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(NAME);
        let Some(text) = durable::read(disk, &path)? else { return Ok(None) };
        let mut file: Self = serde_json::from_slice(&text)
            .map_err(|error| damaged(&path, 0, "it does not describe a topic").with_source(error))?;
        let checksum = std::mem::take(&mut file.checksum);
        if checksum != file.computed_checksum()? {
            return Err(damaged(&path, 0, "its checksum is wrong"));
        }
        Ok(Some(file))
    }

    /// Puts it into `folder`, as a whole and durably.
    pub(crate) fn write(&self, disk: &dyn Disk, folder: &Path) -> Result<()> {
        let checksum = self.computed_checksum()?;
        let document = Self { checksum, ..self.clone() }.encode()?;
        durable::replace(disk, &folder.join(NAME), &document)
    }

    fn computed_checksum(&self) -> Result<String> {
        // Always as long, so that what is written does not depend on the moment at which the topic was created.
        Ok(format!("{:08x}", crc32c::crc32c(&self.encode()?)))
    }

    /// The fields in their order here, so that the checksum does not depend on how this was built.
    fn encode(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self)
            .map_err(|error| Error::new(ErrorKind::Internal, "cannot write down a topic").with_source(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SystemDisk;

    /// The file as `docs/reference/log-format.md` shows it. Topics that were written so must be read for ever after.
    #[test]
    fn the_file_in_the_reference_is_read_and_written_like_this() {
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
