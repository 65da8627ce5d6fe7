//! `start.json`: the first offset of a partition; retention removed everything below.
//!
//! Written before the first segment is removed, so that a segment missing from there on is damage. It also holds the
//! state of the producers at that offset, because the segments that held it are gone. A producer whose messages were
//! all removed must not restart at sequence 0.

use std::path::Path;

use landfall_core::Result;
use serde::{Deserialize, Serialize};

use crate::disk::Disk;
use crate::durable::{self, damaged};
use crate::write::producers::{Epoch, ProducerId, ProducerState};

pub(crate) const NAME: &str = "start.json";

/// The start of a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) offset: u64,
    /// The state of the producers at that offset, sorted by producer.
    pub(crate) producers: Vec<ProducerState>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    start: u64,
    producers: Vec<ProducerEntry>,
    /// CRC32C of the preceding numbers, in order.
    checksum: u32,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProducerEntry {
    id: ProducerId,
    epoch: Epoch,
    next_sequence: u64,
}

impl Document {
    fn computed_checksum(&self) -> u32 {
        let start = crc32c::crc32c(&self.start.to_le_bytes());
        self.producers.iter().fold(start, |sum, ProducerEntry { id, epoch, next_sequence }| {
            let sum = crc32c::crc32c_append(sum, &id.to_le_bytes());
            let sum = crc32c::crc32c_append(sum, &epoch.to_le_bytes());
            crc32c::crc32c_append(sum, &next_sequence.to_le_bytes())
        })
    }
}

/// Reads the start of the partition in `directory`.
pub(crate) fn read(disk: &dyn Disk, directory: &Path) -> Result<Start> {
    let path = directory.join(NAME);
    let Some(text) = durable::read(disk, &path)? else { return Ok(Start::default()) };
    let document: Document = serde_json::from_slice(&text)
        .map_err(|error| damaged(&path, 0, "the file does not hold the partition's start").with_source(error))?;
    if document.checksum != document.computed_checksum() {
        return Err(damaged(&path, 0, "the checksum is wrong"));
    }
    let state = |ProducerEntry { id: producer, epoch, next_sequence }| ProducerState { producer, epoch, next_sequence };
    Ok(Start { offset: document.start, producers: document.producers.into_iter().map(state).collect() })
}

pub(crate) fn write(disk: &dyn Disk, directory: &Path, start: &Start) -> Result<()> {
    let entry = |state: &ProducerState| {
        let ProducerState { producer: id, epoch, next_sequence } = *state;
        ProducerEntry { id, epoch, next_sequence }
    };
    let producers = start.producers.iter().map(entry).collect();
    let mut document = Document { start: start.offset, producers, checksum: 0 };
    document.checksum = document.computed_checksum();
    durable::replace(disk, &directory.join(NAME), serde_json::json!(document).to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use landfall_core::ErrorKind;

    use super::*;
    use crate::storage::index::memory_disk::MemoryDisk;

    #[test]
    fn file_reads_back_unchanged_and_changed_numbers_are_refused() {
        let (disk, folder) = MemoryDisk::new();
        assert_eq!(read(&*disk, &folder).unwrap(), Start::default());
        let producers = vec![ProducerState { producer: 3, epoch: 1, next_sequence: u64::MAX }];
        let start = Start { offset: 4711, producers };
        write(&*disk, &folder, &start).unwrap();
        assert_eq!(read(&*disk, &folder).unwrap(), start);
        let text = String::from_utf8(disk.content(&folder.join(NAME))).unwrap();
        for (from, to) in [("4711", "4712"), ("\"epoch\":1", "\"epoch\":2"), ("\"id\":3", "\"id\":4")] {
            assert!(text.contains(from), "{text}");
            disk.put(&folder.join(NAME), text.replace(from, to).into_bytes());
            assert_eq!(read(&*disk, &folder).unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }
}
