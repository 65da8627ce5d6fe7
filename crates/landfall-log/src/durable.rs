//! Durable changes to directories, and the errors of failed file operations.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use landfall_core::{Error, ErrorKind, Result};

use crate::disk::{self, Access, Disk};

/// The name of an unfinished file. No other file of the log has this name.
pub(crate) const UNFINISHED: &str = "new";

/// Writes `content` to `path` atomically and durably. A crash leaves the old file, the new one, or an unfinished file
/// that is never read.
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

/// Reads the whole file at `path`; `None` if it does not exist.
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
    disk.open(path, Access::Read).and_then(|file| file.length()).map_err(failed("read the size of", path))
}

/// Lists the names in the directory at `path`, sorted; empty if it is not a directory.
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

/// Removes the file at `path` durably; succeeds if it does not exist.
pub(crate) fn remove(disk: &dyn Disk, path: &Path) -> Result<()> {
    match disk.remove(path) {
        Ok(()) => sync_directory(disk, parent(path)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("remove", path)(error)),
    }
}

/// Removes everything in the directory at `path` durably; succeeds if it does not exist.
pub(crate) fn empty(disk: &dyn Disk, path: &Path) -> Result<()> {
    for name in list(disk, path)? {
        let child = path.join(name);
        if is_directory(disk, &child)? {
            empty(disk, &child)?;
        }
        disk.remove(&child).map_err(failed("remove", &child))?;
    }
    if is_directory(disk, path)? { sync_directory(disk, path) } else { Ok(()) }
}

/// Removes the directory at `path` and its contents durably.
pub(crate) fn remove_tree(disk: &dyn Disk, path: &Path) -> Result<()> {
    empty(disk, path)?;
    remove(disk, path)
}

/// Creates the directory `path` durably; succeeds if it exists. Its parent must exist.
pub(crate) fn create_directory(disk: &dyn Disk, path: &Path) -> Result<()> {
    match disk.create_directory(path) {
        Ok(()) => {}
        // A process may have created it and died before it synced the parent, so sync in either case.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed("create the folder", path)(error)),
    }
    sync_directory(disk, parent(path)?)
}

/// Creates `path` and its missing parents durably.
pub(crate) fn create_directories(disk: &dyn Disk, path: &Path) -> Result<()> {
    if is_directory(disk, path)? {
        return Ok(());
    }
    create_directories(disk, parent(path)?)?;
    create_directory(disk, path)
}

/// Makes the directory entry of `path` durable.
pub(crate) fn sync_name(disk: &dyn Disk, path: &Path) -> Result<()> {
    let Ok(parent) = parent(path) else { return Ok(()) };
    match disk.sync_directory(parent) {
        // The parent belongs to another user, whose job it was to make the entry durable.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced.map_err(failed("sync the folder", parent)),
    }
}

/// Whether `path` is a directory that can be listed. Fails only if no file descriptor is left to find out.
pub(crate) fn is_directory(disk: &dyn Disk, path: &Path) -> Result<bool> {
    match disk.list(path) {
        Err(error) if lacks_descriptors(&error) => Err(failed("list", path)(error)),
        listed => Ok(listed.is_ok()),
    }
}

pub(crate) fn sync_directory(disk: &dyn Disk, path: &Path) -> Result<()> {
    disk.sync_directory(path).map_err(failed("sync the folder", path))
}

/// Returns the error for a failed `action` on `path`, with the operating system's error as its source.
pub(crate) fn failed(action: &str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let sentence = format!("cannot {action} {}", path.display());
    move |error| Error::new(ErrorKind::Unavailable, sentence).with_source(error)
}

/// Whether the source of the error is a missing file.
pub(crate) fn is_missing(error: &Error) -> bool {
    cause(error).is_some_and(|cause| cause.kind() == io::ErrorKind::NotFound)
}

fn cause(error: &Error) -> Option<&io::Error> {
    std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>())
}

/// Like [`failed`], but [`is_full`] never holds for the error, because freeing space does not help. Some file systems
/// need space even to overwrite zeros, and by then accepted messages depend on the write.
pub(crate) fn fatal(action: &str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let failed = failed(action, path);
    |error| failed(io::Error::other(error))
}

/// Whether the disk or its quota is full.
pub(crate) fn is_full(error: &Error) -> bool {
    cause(error).is_some_and(|cause| matches!(cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
}

/// Whether the process or the machine had no file descriptor left. Only opening fails so, which changes nothing.
pub(crate) fn is_out_of_descriptors(error: &Error) -> bool {
    cause(error).is_some_and(lacks_descriptors)
}

/// Whether the error passes once space or file descriptors are free: nothing has changed, and a retry may succeed.
pub(crate) fn is_passing(error: &Error) -> bool {
    is_full(error) || is_out_of_descriptors(error)
}

fn lacks_descriptors(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    matches!(code, Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE))
}

/// Syncs the directory at `path`, which now holds a new name that must not be lost. Waits for a file descriptor.
pub(crate) fn sync_new_name(disk: &dyn Disk, path: &Path) -> Result<()> {
    const LONGEST_WAIT: Duration = Duration::from_secs(10);
    let start = Instant::now();
    loop {
        match disk.sync_directory(path) {
            Err(error) if lacks_descriptors(&error) && start.elapsed() < LONGEST_WAIT => {
                std::thread::sleep(Duration::from_millis(10));
            }
            synced => return synced.map_err(fatal("sync the folder", path)),
        }
    }
}

/// Returns the error for stored bytes that differ from what was written.
pub(crate) fn damaged(path: &Path, position: u64, what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{} is damaged at byte {position}: {what}", path.display()))
}

fn parent(path: &Path) -> Result<&Path> {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Ok(Path::new(".")),
        Some(parent) => Ok(parent),
        None => Err(Error::invalid(format!("{} has no parent folder", path.display()))),
    }
}
