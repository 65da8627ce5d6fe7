//! The system's disk with instrumentation: bytes read of each file, number of syncs, and a simulated full disk.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use landfall_log::disk::{Access, Disk, File, SystemDisk};

#[derive(Debug, Default, Clone)]
pub(crate) struct CountingDisk {
    read: Arc<Mutex<BTreeMap<PathBuf, u64>>>,
    syncs: Arc<AtomicU64>,
    is_full: Arc<AtomicBool>,
    is_tight: Arc<AtomicBool>,
    preallocates_ahead: bool,
}

#[derive(Debug)]
struct CountingFile {
    file: Arc<dyn File>,
    path: PathBuf,
    disk: CountingDisk,
}

impl CountingDisk {
    /// A disk with preallocation in the background.
    pub(crate) fn working_ahead() -> Self {
        Self { preallocates_ahead: true, ..Self::default() }
    }

    /// The number of bytes read of each file.
    pub(crate) fn read(&self) -> BTreeMap<PathBuf, u64> {
        self.read.lock().unwrap().clone()
    }

    /// The number of syncs of files.
    pub(crate) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::SeqCst)
    }

    /// Sets whether files can grow.
    pub(crate) fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::SeqCst);
    }

    /// Sets whether writes succeed but preallocation fails.
    pub(crate) fn set_tight(&self, is_tight: bool) {
        self.is_tight.store(is_tight, Ordering::SeqCst);
    }
}

impl Disk for CountingDisk {
    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        SystemDisk.list(folder)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        SystemDisk.create_directory(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        SystemDisk.sync_directory(path)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let file = SystemDisk.open(path, access)?;
        Ok(Arc::new(CountingFile { file, path: path.to_owned(), disk: self.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        SystemDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        SystemDisk.remove(path)
    }

    fn preallocates_ahead(&self) -> bool {
        self.preallocates_ahead
    }
}

impl File for CountingFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let read = self.file.read_at(buffer, position)?;
        *self.disk.read.lock().unwrap().entry(self.path.clone()).or_default() += read as u64;
        Ok(read)
    }

    /// A write that extends the file fails on a full disk, after a part of it was written.
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let is_full = self.disk.is_full.load(Ordering::SeqCst);
        if is_full && position + bytes.len() as u64 > self.file.length()? {
            self.file.write_at(&bytes[..bytes.len() / 2], position)?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.write_at(bytes, position)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_length(length)
    }

    fn allocate(&self, from: u64, to: u64) -> io::Result<()> {
        if self.disk.is_full.load(Ordering::SeqCst) || self.disk.is_tight.load(Ordering::SeqCst) {
            self.file.set_length(from + (to - from) / 2)?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.allocate(from, to)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.syncs.fetch_add(1, Ordering::SeqCst);
        self.file.sync()
    }
}
