//! The version of everything in a log's folder, so that an older build never misreads what a newer one wrote.

use std::fs;
use std::io;
use std::path::Path;

use landfall_core::{Error, ErrorKind, Result};

use crate::durable::{self, failed};

const VERSION: u32 = 1;
const NAME: &str = "landfall-log";

/// Whether `folder` holds a log that this build can read; `false` if it holds none.
pub(crate) fn check(folder: &Path) -> Result<bool> {
    let path = folder.join("format");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        // The version is written before the first topic, so topics without a version were not left by a crash.
        Err(error) if error.kind() == io::ErrorKind::NotFound => match folder.join("topics").exists() {
            false => return Ok(false),
            true => return Err(durable::damaged(&path, 0, "the file is missing although the folder holds topics")),
        },
        Err(error) => return Err(failed("read", &path)(error)),
    };
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
        _ => Err(durable::damaged(&path, 0, "it does not name a format")),
    }
}

/// Marks `folder` as a log of this build's format.
pub(crate) fn write(folder: &Path) -> Result<()> {
    durable::replace(&folder.join("format"), format!("{NAME} {VERSION}\n").as_bytes())
}
