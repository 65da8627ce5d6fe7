//! A disk that fails all changes after a given number, as for a process that dies there.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use landfall_log::disk::{Access, Disk, File, SystemDisk};

#[derive(Debug)]
pub(crate) struct FailingDisk {
    left: Arc<AtomicI64>,
    kind: io::ErrorKind,
}

#[derive(Debug)]
struct FailingFile {
    file: Arc<dyn File>,
    disk: FailingDisk,
}

impl FailingDisk {
    /// Works until [`FailingDisk::fail_after`] sets a limit.
    pub(crate) fn new(kind: io::ErrorKind) -> Self {
        Self { left: Arc::new(AtomicI64::new(i64::MAX)), kind }
    }

    /// Lets `changes` more succeed; later ones fail until this is called again.
    pub(crate) fn fail_after(&self, changes: i64) {
        self.left.store(changes, Ordering::SeqCst);
    }

    /// Whether a change has failed since the last call of [`FailingDisk::fail_after`].
    pub(crate) fn has_failed(&self) -> bool {
        self.left.load(Ordering::SeqCst) < 0
    }

    fn change(&self) -> io::Result<()> {
        match self.left.fetch_sub(1, Ordering::SeqCst) {
            left if left > 0 => Ok(()),
            _ => Err(io::Error::new(self.kind, "injected disk failure")),
        }
    }
}

impl Disk for FailingDisk {
    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        SystemDisk.list(folder)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.change()?;
        SystemDisk.create_directory(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.change()?;
        SystemDisk.sync_directory(path)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        if access != Access::Read {
            self.change()?;
        }
        let disk = Self { left: Arc::clone(&self.left), kind: self.kind };
        Ok(Arc::new(FailingFile { file: SystemDisk.open(path, access)?, disk }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change()?;
        SystemDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change()?;
        SystemDisk.remove(path)
    }
}

impl File for FailingFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_at(buffer, position)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.disk.change()?;
        self.file.write_at(bytes, position)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.disk.change()?;
        self.file.set_length(length)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.change()?;
        self.file.sync()
    }
}
