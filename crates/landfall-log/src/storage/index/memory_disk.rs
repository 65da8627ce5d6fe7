//! An in-memory disk for fast tests and fuzzing. It loses nothing, and every directory exists.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::{Access, Disk, File};

#[derive(Debug, Default)]
pub(crate) struct MemoryDisk {
    files: Mutex<BTreeMap<PathBuf, Arc<MemoryFile>>>,
}

#[derive(Debug, Default)]
pub(crate) struct MemoryFile(Mutex<Vec<u8>>);

impl MemoryDisk {
    /// Creates a disk, and the path of a folder on it.
    pub(crate) fn new() -> (Arc<Self>, PathBuf) {
        (Arc::default(), PathBuf::from("folder"))
    }

    pub(crate) fn content(&self, path: &Path) -> Vec<u8> {
        self.files()[path].content().clone()
    }

    pub(crate) fn put(&self, path: &Path, content: Vec<u8>) {
        self.files().insert(path.to_owned(), Arc::new(MemoryFile(Mutex::new(content))));
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Arc<MemoryFile>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for MemoryDisk {
    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let name = |path: &PathBuf| path.file_name()?.to_str().map(str::to_owned);
        Ok(self.files().keys().filter(|path| path.parent() == Some(folder)).filter_map(name).collect())
    }

    fn create_directory(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let mut files = self.files();
        if access == Access::Create {
            files.insert(path.to_owned(), Arc::default());
        }
        let file = files.get(path).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Arc::clone(file) as Arc<dyn File>)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = self.files();
        let file = files.remove(from).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files().remove(path).map(|_| ()).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

impl MemoryFile {
    fn content(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl File for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let content = self.content();
        let rest = content.get(position as usize..).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let (mut content, position) = (self.content(), position as usize);
        let length = content.len().max(position + bytes.len());
        content.resize(length, 0);
        content[position..position + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.content().resize(length as usize, 0);
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.content().len() as u64)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
