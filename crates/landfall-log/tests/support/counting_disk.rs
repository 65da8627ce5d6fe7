//! A disk that counts what is read of each file.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use landfall_log::disk::{Access, Disk, File, SystemDisk};

#[derive(Debug, Default, Clone)]
pub(crate) struct CountingDisk {
    read: Arc<Mutex<BTreeMap<PathBuf, u64>>>,
}

#[derive(Debug)]
struct CountingFile {
    file: Arc<dyn File>,
    path: PathBuf,
    disk: CountingDisk,
}

impl CountingDisk {
    /// How many bytes were read of each file.
    pub(crate) fn read(&self) -> BTreeMap<PathBuf, u64> {
        self.read.lock().unwrap().clone()
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
}

impl File for CountingFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let read = self.file.read_at(buffer, position)?;
        *self.disk.read.lock().unwrap().entry(self.path.clone()).or_default() += read as u64;
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.file.write_at(bytes, position)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_length(length)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}
