//! The file system as the log uses it, so that a test can put another one in its place: one that forgets what was
//! not synced, tears what was half written, or is full.
//!
//! What the log relies on, and nothing else:
//!
//! * [`File::sync`] makes the bytes and the length of a file durable; before it any part of what was written since the
//!   last one may be lost in a crash, and any other part kept.
//! * [`Disk::sync_directory`] makes durable which names a folder holds; before it a file that was created, renamed or
//!   removed may be found either way.
//! * [`Disk::rename`] replaces its target as a whole.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Folders and the files in them. Errors are those of the operating system.
pub trait Disk: fmt::Debug + Send + Sync {
    /// The names in the folder, in no order.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Creates a folder; `AlreadyExists` if it does.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>>;

    /// Gives a file or a folder another name, in place of a file that has it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file or an empty folder. Whoever has the file open can still read it.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Whether room is made for the next batch once the last one was answered, before anybody asks for it. On a disk
    /// that says no it is made when it is needed, so that the same calls lead to the same changes in the same order,
    /// whatever the moment at which they come.
    fn works_ahead(&self) -> bool {
        false
    }
}

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    /// To write a new, empty file, in place of one that is there.
    Create,
}

/// An open file.
pub trait File: fmt::Debug + Send + Sync {
    /// Fills a part of `buffer` with what stands at `position`; 0 at the end of the file.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;

    /// Writes all of `bytes` at `position`. After an error any part of them may have been written.
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;

    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Makes the file, which ends at `from`, reach up to `to`: what is new reads as zeros, and the disk has room for it
    /// that nobody else gets. After an error the file may have grown by any part of that.
    ///
    /// Unless a disk knows how to promise the room without it, the zeros are written.
    fn set_aside(&self, from: u64, to: u64) -> io::Result<()> {
        write_zeros(self, from, to)
    }

    fn length(&self) -> io::Result<u64>;

    fn sync(&self) -> io::Result<()>;
}

/// Fresh memory for every step would cost more than writing it.
static ZEROS: [u8; 1024 * 1024] = [0; 1024 * 1024];

/// Writes zeros from `from` up to `to`.
pub(crate) fn write_zeros<F: File + ?Sized>(file: &F, from: u64, to: u64) -> io::Result<()> {
    for at in (from..to).step_by(ZEROS.len()) {
        let length = (to - at).min(ZEROS.len() as u64);
        file.write_at(&ZEROS[..length as usize], at)?;
    }
    Ok(())
}

/// Up to `length` bytes of `file` from `position` on; fewer only if it ends.
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
        // A name that is not text is none of ours.
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

    fn works_ahead(&self) -> bool {
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
    fn set_aside(&self, from: u64, to: u64) -> io::Result<()> {
        match rustix::fs::fallocate(self, rustix::fs::FallocateFlags::empty(), from, to - from) {
            // Not every file system can, nor every kernel.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => write_zeros(self, from, to),
            set_aside => set_aside.map_err(io::Error::from),
        }
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
