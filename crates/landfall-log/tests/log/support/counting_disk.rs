//! The system's disk with instrumentation: bytes read of each file, number of syncs, a simulated full disk, and a
//! process without file descriptors.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use landfall_log::disk::{Access, Disk, File, SystemDisk};

#[derive(Debug, Clone)]
pub(crate) struct CountingDisk {
    read: Arc<Mutex<BTreeMap<PathBuf, u64>>>,
    syncs: Arc<AtomicU64>,
    is_full: Arc<AtomicBool>,
    is_tight: Arc<AtomicBool>,
    /// The number of opens that still succeed before a few fail.
    opens_left: Arc<AtomicI64>,
    preallocates_ahead: bool,
}

/// How many opens fail in a row, so that a caller that retries several times sees it too.
const FAILING_OPENS: i64 = 4;

const EMFILE: i32 = 24;

#[derive(Debug)]
struct CountingFile {
    file: Arc<dyn File>,
    path: PathBuf,
    disk: CountingDisk,
}

impl Default for CountingDisk {
    fn default() -> Self {
        Self {
            read: Arc::default(),
            syncs: Arc::default(),
            is_full: Arc::default(),
            is_tight: Arc::default(),
            opens_left: Arc::new(AtomicI64::new(-FAILING_OPENS)),
            preallocates_ahead: false,
        }
    }
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

    /// Lets the next `count` opens succeed, and then a few fail because no file descriptor is left. Returns whether
    /// all of the previous ones have failed.
    pub(crate) fn exhaust_descriptors_after(&self, count: i64) -> bool {
        // Far below zero no open fails.
        self.opens_left.swap(count, Ordering::SeqCst) <= -FAILING_OPENS
    }

    fn take_descriptor(&self) -> io::Result<()> {
        match self.opens_left.fetch_sub(1, Ordering::SeqCst) {
            left if left <= 0 && left > -FAILING_OPENS => Err(io::Error::from_raw_os_error(EMFILE)),
            _ => Ok(()),
        }
    }

    /// Sets whether writes succeed but preallocation fails.
    pub(crate) fn set_tight(&self, is_tight: bool) {
        self.is_tight.store(is_tight, Ordering::SeqCst);
    }
}

impl Disk for CountingDisk {
    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.take_descriptor()?;
        SystemDisk.list(folder)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        SystemDisk.create_directory(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.take_descriptor()?;
        SystemDisk.sync_directory(path)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        self.take_descriptor()?;
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
