//! Changes to folders that survive a power cut, and how a failed file operation is told.

use std::io;
use std::path::Path;

use landfall_core::{Error, ErrorKind, Result};

use crate::disk::{self, Access, Disk};

/// The name of an unfinished file. Nothing else in any of our folders is called so.
pub(crate) const UNFINISHED: &str = "new";

/// Puts `content` at `path` as a whole or not at all: a crash leaves the old file, the new one, or an unfinished
/// one that nobody reads.
pub(crate) fn replace(disk: &dyn Disk, path: &Path, content: &[u8]) -> Result<()> {
    let directory = parent(path)?;
    let unfinished = directory.join(UNFINISHED);
    let write = || -> io::Result<()> {
        let file = disk.open(&unfinished, Access::Create)?;
        file.write_at(content, 0)?;
        file.sync()?;
        disk.rename(&unfinished, path)
    };
    write().map_err(failed("write", path))?;
    sync_directory(disk, directory)
}

/// Everything in the file at `path`; `None` if there is no such file.
pub(crate) fn read(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>> {
    let read = || -> io::Result<Vec<u8>> {
        let file = disk.open(path, Access::Read)?;
        disk::read(&*file, 0, file.length()? as usize)
    };
    match read() {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path)(error)),
    }
}

pub(crate) fn file_bytes(disk: &dyn Disk, path: &Path) -> Result<u64> {
    disk.open(path, Access::Read).and_then(|file| file.length()).map_err(failed("look at", path))
}

/// The names in the folder at `path`, in order; none if it is no folder.
pub(crate) fn list(disk: &dyn Disk, path: &Path) -> Result<Vec<String>> {
    match disk.list(path) {
        Ok(mut names) => {
            names.sort_unstable();
            Ok(names)
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(Vec::new()),
        Err(error) => Err(failed("list", path)(error)),
    }
}

/// Removes the file at `path` and makes that durable; nothing happens if there is none.
pub(crate) fn remove(disk: &dyn Disk, path: &Path) -> Result<()> {
    match disk.remove(path) {
        Ok(()) => sync_directory(disk, parent(path)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("remove", path)(error)),
    }
}

/// Removes everything in the folder at `path`, durably; nothing happens if there is no such folder.
pub(crate) fn empty(disk: &dyn Disk, path: &Path) -> Result<()> {
    for name in list(disk, path)? {
        let child = path.join(name);
        if is_directory(disk, &child) {
            empty(disk, &child)?;
        }
        disk.remove(&child).map_err(failed("remove", &child))?;
    }
    if is_directory(disk, path) { sync_directory(disk, path) } else { Ok(()) }
}

/// Removes the folder at `path` with everything in it, durably.
pub(crate) fn remove_tree(disk: &dyn Disk, path: &Path) -> Result<()> {
    empty(disk, path)?;
    remove(disk, path)
}

/// Creates `path` and makes its name durable; nothing happens if it is there already. Its parent must exist.
pub(crate) fn create_directory(disk: &dyn Disk, path: &Path) -> Result<()> {
    match disk.create_directory(path) {
        Ok(()) => {}
        // It may stem from a process that died before it could sync the name, so that is done in any case.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed("create the folder", path)(error)),
    }
    sync_directory(disk, parent(path)?)
}

/// Creates `path` and whatever is missing above it, durably.
pub(crate) fn create_directories(disk: &dyn Disk, path: &Path) -> Result<()> {
    if is_directory(disk, path) {
        return Ok(());
    }
    create_directories(disk, parent(path)?)?;
    create_directory(disk, path)
}

/// Makes durable that there is a folder at `path`.
pub(crate) fn sync_name(disk: &dyn Disk, path: &Path) -> Result<()> {
    let Ok(parent) = parent(path) else { return Ok(()) };
    match disk.sync_directory(parent) {
        // Whoever created it in a folder that is not ours to read has seen to that.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced.map_err(failed("sync the folder", parent)),
    }
}

pub(crate) fn is_directory(disk: &dyn Disk, path: &Path) -> bool {
    disk.list(path).is_ok()
}

pub(crate) fn sync_directory(disk: &dyn Disk, path: &Path) -> Result<()> {
    disk.sync_directory(path).map_err(failed("sync the folder", path))
}

/// The error for `action` on `path`: a sentence that names both, with the system's own words as its cause.
pub(crate) fn failed(action: &str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let sentence = format!("cannot {action} {}", path.display());
    move |error| Error::new(ErrorKind::Unavailable, sentence).with_source(error)
}

/// Whether the cause is that there is no such file.
pub(crate) fn is_missing(error: &Error) -> bool {
    cause(error).is_some_and(|cause| cause.kind() == io::ErrorKind::NotFound)
}

fn cause(error: &Error) -> Option<&io::Error> {
    std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>())
}

/// The error for `action` on `path` where it does not help to have room later, so that [`is_full`] does not hold: some
/// file systems need room even for what is written in the place of zeros, and by then messages hang on it.
pub(crate) fn failed_for_good(action: &str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let failed = failed(action, path);
    |error| failed(io::Error::other(error))
}

/// Whether the cause is that the disk, or what may be used of it, is full.
pub(crate) fn is_full(error: &Error) -> bool {
    cause(error).is_some_and(|cause| matches!(cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
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
