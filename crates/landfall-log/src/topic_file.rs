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
use crate::settings::TopicSettings;

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
    /// CRC32C of this object with a 0 in place of the checksum: another number of partitions would send every key
    /// elsewhere, and other settings would remove what somebody wanted to keep.
    checksum: u32,
}

impl TopicFile {
    pub(crate) fn new(topic: TopicName, partitions: u32, settings: TopicSettings) -> Self {
        Self { topic, created: Timestamp::now(), partitions, settings, checksum: 0 }
    }

    /// What stands in `folder`; `None` if there is no topic in it.
    pub(crate) fn read(disk: &dyn Disk, folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(NAME);
        let Some(text) = durable::read(disk, &path)? else { return Ok(None) };
        let mut file: Self = serde_json::from_slice(&text)
            .map_err(|error| damaged(&path, 0, "it does not describe a topic").with_source(error))?;
        let checksum = std::mem::take(&mut file.checksum);
        if checksum != crc32c::crc32c(&file.encode()?) {
            return Err(damaged(&path, 0, "its checksum is wrong"));
        }
        Ok(Some(file))
    }

    /// Puts it into `folder`, as a whole and durably.
    pub(crate) fn write(&self, disk: &dyn Disk, folder: &Path) -> Result<()> {
        let checksum = crc32c::crc32c(&self.encode()?);
        let document = Self { checksum, ..self.clone() }.encode()?;
        durable::replace(disk, &folder.join(NAME), &document)
    }

    /// The fields in their order here, so that the checksum does not depend on how this was built.
    fn encode(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self)
            .map_err(|error| Error::new(ErrorKind::Internal, "cannot write down a topic").with_source(error))
    }
}
