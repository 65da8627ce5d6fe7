//! One process at a time: the lock on a log's folder.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use landfall_core::{Error, ErrorKind, Result};

use crate::durable::failed;

/// Holds the folder until it is dropped. The operating system lets go of it too when the process dies, however it
/// dies, so that a lock file that is left behind never keeps anybody out.
#[derive(Debug)]
pub(crate) struct FolderLock(File);

impl Drop for FolderLock {
    /// Lets go of it by name, and not only by closing the file: a child process that is just being started may have it
    /// open too for a moment, and would hold it for as long.
    fn drop(&mut self) {
        // If that fails, closing the file lets go of it in nearly all cases, and there is nobody to tell.
        let _ = self.0.unlock();
    }
}

impl FolderLock {
    pub(crate) fn acquire(folder: &Path) -> Result<Self> {
        let path = folder.join("lock");
        // Not truncated: until the lock is ours the file names the process that holds it.
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(folder, &mut file)),
            Err(TryLockError::Error(error)) => return Err(failed("lock", &path)(error)),
        }
        let name_ourselves = |file: &mut File| -> std::io::Result<()> {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        name_ourselves(&mut file).map_err(failed("write", &path))?;
        Ok(Self(file))
    }
}

fn in_use(folder: &Path, file: &mut File) -> Error {
    let mut text = String::new();
    // Whoever holds it may be about to write its number; the sentence is true without it.
    let holder = match file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse::<u32>().ok()) {
        Some(pid) if pid == std::process::id() => format!("this process ({pid})"),
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    };
    Error::new(
        ErrorKind::InUse,
        format!("the folder {} is in use by {holder}; stop that one first or choose another folder", folder.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_free_once_its_lock_is_dropped_although_a_child_has_the_file_open() {
        let folder = tempfile::tempdir().unwrap();
        let lock = FolderLock::acquire(folder.path()).unwrap();
        let inherited = lock.0.try_clone().unwrap();
        assert_eq!(FolderLock::acquire(folder.path()).unwrap_err().kind(), ErrorKind::InUse);
        drop(lock);
        FolderLock::acquire(folder.path()).unwrap();
        drop(inherited);
    }
}
