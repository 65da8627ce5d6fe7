//! Where a partition begins: below that offset retention removed everything.
//!
//! Written before the first segment is removed, so that segments that are missing from there on are damage.

use std::path::Path;

use landfall_core::Result;
use serde::{Deserialize, Serialize};

use crate::disk::Disk;
use crate::durable::{self, damaged};

pub(crate) const NAME: &str = "start.json";

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    start: u64,
    /// CRC32C of the number before.
    checksum: u32,
}

/// The offset at which the partition in `directory` begins.
pub(crate) fn read(disk: &dyn Disk, directory: &Path) -> Result<u64> {
    let path = directory.join(NAME);
    let Some(text) = durable::read(disk, &path)? else { return Ok(0) };
    let document: Document = serde_json::from_slice(&text)
        .map_err(|error| damaged(&path, 0, "it does not say where the partition begins").with_source(error))?;
    if document.checksum != checksum(document.start) {
        return Err(damaged(&path, 0, "its checksum is wrong"));
    }
    Ok(document.start)
}

pub(crate) fn write(disk: &dyn Disk, directory: &Path, start: u64) -> Result<()> {
    let document = Document { start, checksum: checksum(start) };
    durable::replace(disk, &directory.join(NAME), serde_json::json!(document).to_string().as_bytes())
}

fn checksum(start: u64) -> u32 {
    crc32c::crc32c(&start.to_le_bytes())
}
