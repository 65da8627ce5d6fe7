//! The file system as the log uses it. Tests substitute one that loses unsynced data, tears writes, or is full.
//!
//! The log relies on exactly these promises:
//!
//! * [`File::sync`] makes the bytes and the length of a file durable. Before it returns, a crash may lose any part of
//!   what was written since the last sync, and keep any other part.
//! * [`Disk::sync_directory`] makes the entries of a directory durable. Before it returns, a crash may undo a
//!   creation, rename or removal, or not.
//! * [`Disk::rename`] replaces its target atomically.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Directories and the files in them. Errors are those of the operating system.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Lists the names in the directory, unordered.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Creates a directory; `AlreadyExists` if it exists.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>>;

    /// Renames a file or a directory. Replaces an existing file at `to`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file or an empty directory. A file that is open stays readable.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Whether the log preallocates space for the next batch as soon as the previous one is acknowledged. Otherwise it
    /// allocates on demand, so that the same calls make the same changes in the same order, independent of timing. The
    /// simulation depends on that.
    fn preallocates_ahead(&self) -> bool {
        false
    }
}

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    /// Creates an empty file, replacing an existing one.
    Create,
}

/// An open file.
pub trait File: fmt::Debug + Send + Sync {
    /// Reads bytes at `position` into a part of `buffer`; returns 0 at the end of the file.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;

    /// Writes all of `bytes` at `position`. After an error any part of them may have been written.
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;

    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Extends the file from `from`, its current end, to `to`. The new bytes read as zeros and their disk space is
    /// reserved. After an error the file may have grown by any part of that.
    ///
    /// The default implementation writes the zeros.
    fn allocate(&self, from: u64, to: u64) -> io::Result<()> {
        write_zeros(self, from, to)
    }

    fn length(&self) -> io::Result<u64>;

    fn sync(&self) -> io::Result<()>;
}

/// One shared buffer: allocating it for every step would cost more than the write.
static ZEROS: [u8; 1024 * 1024] = [0; 1024 * 1024];

/// Writes zeros from `from` up to `to`.
pub(crate) fn write_zeros<F: File + ?Sized>(file: &F, from: u64, to: u64) -> io::Result<()> {
    for at in (from..to).step_by(ZEROS.len()) {
        let length = (to - at).min(ZEROS.len() as u64);
        file.write_at(&ZEROS[..length as usize], at)?;
    }
    Ok(())
}

/// Reads up to `length` bytes of `file` from `position`; fewer only at the end of the file.
pub(crate) fn read(file: &dyn File, position: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut bytes[filled..], position + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// The file system of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemDisk;

impl Disk for SystemDisk {
    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        // The log creates only UTF-8 names, so any other name is not one of its files.
        let name =
            |entry: io::Result<fs::DirEntry>| entry.map(|entry| entry.file_name().into_string().ok()).transpose();
        fs::read_dir(folder)?.filter_map(name).collect()
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true);
        match access {
            Access::Read => &mut options,
            Access::Write => options.write(true),
            Access::Create => options.write(true).create(true).truncate(true),
        };
        Ok(Arc::new(options.open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match fs::symlink_metadata(path)?.is_dir() {
            true => fs::remove_dir(path),
            false => fs::remove_file(path),
        }
    }

    fn preallocates_ahead(&self) -> bool {
        true
    }
}

impl File for fs::File {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, position)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.write_all_at(bytes, position)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    #[cfg(target_os = "linux")]
    fn allocate(&self, from: u64, to: u64) -> io::Result<()> {
        match rustix::fs::fallocate(self, rustix::fs::FallocateFlags::empty(), from, to - from) {
            // Some file systems and kernels have no fallocate.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => write_zeros(self, from, to),
            allocated => allocated.map_err(io::Error::from),
        }
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
