//! The format version of a log's folder, so that an older build never misreads the files of a newer one.

use std::path::Path;

use landfall_core::{Error, ErrorKind, Result};

use crate::disk::Disk;
use crate::durable;

const VERSION: u32 = 1;
const NAME: &str = "landfall-log";

/// Whether `folder` holds a log that this build can read; `false` if it holds no log.
pub(crate) fn check(disk: &dyn Disk, folder: &Path) -> Result<bool> {
    let path = folder.join("format");
    let Some(text) = durable::read(disk, &path)? else {
        // The version is written before the first topic, so no crash leaves topics without a version.
        return match durable::is_directory(disk, &folder.join("topics"))? {
            false => Ok(false),
            true => Err(durable::damaged(&path, 0, "the file is missing although the folder holds topics")),
        };
    };
    let text = String::from_utf8_lossy(&text);
    let version = text.strip_prefix(NAME).and_then(|rest| rest.trim().parse::<u32>().ok());
    match version {
        Some(VERSION) => Ok(true),
        Some(version) if version > VERSION => Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "{} holds a log of format {version} and this build knows formats up to {VERSION}; use a newer build",
                folder.display()
            ),
        )),
        _ => Err(durable::damaged(&path, 0, "the file does not name a format version")),
    }
}

/// Marks `folder` as a log of this build's format.
pub(crate) fn write(disk: &dyn Disk, folder: &Path) -> Result<()> {
    durable::replace(disk, &folder.join("format"), format!("{NAME} {VERSION}\n").as_bytes())
}
