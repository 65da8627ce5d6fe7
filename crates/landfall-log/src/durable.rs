//! Changes to folders that survive a power cut, and how a failed file operation is told.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use landfall_core::{Error, ErrorKind, Result};

/// The name of an unfinished file. Nothing else in any of our folders is called so.
pub(crate) const UNFINISHED: &str = "new";

/// Puts `content` at `path` as a whole or not at all: a crash leaves the old file, the new one, or an unfinished
/// one that nobody reads.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let directory = parent(path)?;
    let unfinished = directory.join(UNFINISHED);
    let write = || -> io::Result<()> {
        let mut file = File::create(&unfinished)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&unfinished, path)
    };
    write().map_err(failed("write", path))?;
    sync_directory(directory)
}

/// Creates `path` and makes its name durable; nothing happens if it is there already. Its parent must exist.
pub(crate) fn create_directory(path: &Path) -> Result<()> {
    match fs::create_dir(path) {
        Ok(()) => {}
        // It may stem from a process that died before it could sync the name, so that is done in any case.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed("create the folder", path)(error)),
    }
    sync_directory(parent(path)?)
}

/// Creates `path` and whatever is missing above it, durably.
pub(crate) fn create_directories(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    create_directories(parent(path)?)?;
    create_directory(path)
}

pub(crate) fn sync_directory(path: &Path) -> Result<()> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(failed("sync the folder", path))
}

/// The error for `action` on `path`: a sentence that names both, with the system's own words as its cause.
pub(crate) fn failed(action: &str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let sentence = format!("cannot {action} {}", path.display());
    move |error| Error::new(ErrorKind::Unavailable, sentence).with_source(error)
}

/// The error for stored bytes that are not what was written.
pub(crate) fn damaged(path: &Path, position: u64, what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{} is damaged at byte {position}: {what}", path.display()))
}

fn parent(path: &Path) -> Result<&Path> {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Ok(Path::new(".")),
        Some(parent) => Ok(parent),
        None => Err(Error::invalid(format!("{} does not lie in a folder", path.display()))),
    }
}
