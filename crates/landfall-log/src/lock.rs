//! The lock on a log's folder: one process at a time.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use landfall_core::{Error, ErrorKind, Result};

use crate::durable::failed;

/// Holds the lock until dropped. The operating system releases it too when the process dies, so a leftover lock file
/// never blocks a later process.
#[derive(Debug)]
pub(crate) struct FolderLock(File);

impl Drop for FolderLock {
    /// Unlocks explicitly instead of only closing the file: a child process that is just being spawned may briefly
    /// share the descriptor and would keep the lock.
    fn drop(&mut self) {
        // If this fails, closing the file releases the lock in nearly all cases.
        let _ = self.0.unlock();
    }
}

impl FolderLock {
    pub(crate) fn acquire(folder: &Path) -> Result<Self> {
        let path = folder.join("lock");
        // Not truncated: until this process has the lock, the file holds the id of the process that has it.
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
        let write_process_id = |file: &mut File| -> std::io::Result<()> {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        write_process_id(&mut file).map_err(failed("write", &path))?;
        Ok(Self(file))
    }
}

fn in_use(folder: &Path, file: &mut File) -> Error {
    let mut text = String::new();
    // The holder may not have written its process id yet.
    let holder = match file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse::<u32>().ok()) {
        Some(pid) if pid == std::process::id() => format!("this process ({pid})"),
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    };
    Error::new(
        ErrorKind::InUse,
        format!("the folder {} is in use by {holder}; stop it first or choose another folder", folder.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_the_lock_frees_the_folder_while_a_child_has_it_open() {
        let folder = tempfile::tempdir().unwrap();
        let lock = FolderLock::acquire(folder.path()).unwrap();
        let inherited = lock.0.try_clone().unwrap();
        assert_eq!(FolderLock::acquire(folder.path()).unwrap_err().kind(), ErrorKind::InUse);
        drop(lock);
        FolderLock::acquire(folder.path()).unwrap();
        drop(inherited);
    }
}
