//! The folder of a demo: temporary, or `--data DIR`.
//!
//! ```text
//! landfall-demo.json                    marks the folder as a demo's and holds the seed; locked while a demo runs
//! orders.db   stock.db   payment.db     one database for each service
//! log/                                  the embedded log
//! world.log                             stderr of the child process
//! crashes                               one line for each time it was killed
//! ```

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::Result;
use super::story::Story;
use crate::error::Error;

pub(super) const LOG: &str = "log";
const MARKER: &str = "landfall-demo.json";
const CRASHES: &str = "crashes";
const WORLD_LOG: &str = "world.log";

/// A demo folder, locked as long as this value lives.
#[derive(Debug)]
pub(crate) struct Folder {
    story: Story,
    path: PathBuf,
    /// Removes the folder when it is dropped.
    temporary: Option<TempDir>,
    _locked: File,
}

#[derive(Debug, Serialize, Deserialize)]
struct Marker {
    seed: u64,
}

impl Folder {
    /// Opens `data`, or a temporary folder without it. An existing demo folder keeps its seed; a folder with other
    /// files is refused and left unchanged.
    pub(crate) fn open(data: Option<PathBuf>, orders: u32, seed: Option<u64>) -> Result<Self> {
        let (path, temporary) = match data {
            Some(path) => (path, None),
            None => {
                let folder = tempfile::Builder::new().prefix("landfall-demo-").tempdir()?;
                (folder.path().to_owned(), Some(folder))
            }
        };
        prepare(&path)?;
        let mut file = lock(&path)?;
        let seed = agree_on_seed(&mut file, &path, seed)?;
        Ok(Self { story: Story { orders, seed }, path, temporary, _locked: file })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn story(&self) -> Story {
        self.story
    }

    /// Keeps a temporary folder after the demo, for inspection.
    pub(crate) fn keep(&mut self) {
        if let Some(folder) = self.temporary.as_mut() {
            folder.disable_cleanup(true);
        }
    }

    /// Opens the log of the child process; each restart appends to it.
    pub(super) fn world_log(&self) -> std::io::Result<File> {
        OpenOptions::new().create(true).append(true).open(self.path.join(WORLD_LOG))
    }

    pub(super) fn world_log_path(&self) -> PathBuf {
        self.path.join(WORLD_LOG)
    }

    pub(super) fn record_crash(&self) -> std::io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(self.path.join(CRASHES))?;
        writeln!(file, "{} SIGKILL", landfall::Timestamp::now())
    }

    /// Returns the number of crashes in this folder, including earlier runs.
    pub(super) fn crashes(&self) -> std::io::Result<u64> {
        match fs::read_to_string(self.path.join(CRASHES)) {
            Ok(text) => Ok(text.lines().count() as u64),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        }
    }
}

/// Creates a missing folder, and refuses one with other files.
fn prepare(path: &Path) -> Result<()> {
    let refuse = |why: &str| Error::usage(format!("{} {why}", path.display()));
    fs::create_dir_all(path).map_err(|error| refuse(&format!("cannot be created: {error}")))?;
    let mut entries = fs::read_dir(path).map_err(|error| refuse(&format!("cannot be read: {error}")))?;
    if !path.join(MARKER).exists() && entries.next().is_some() {
        return Err(refuse("is not empty and not a demo folder; name a new folder, or one of an earlier demo").into());
    }
    Ok(())
}

/// Locks the marker file; the operating system releases the lock when this process dies.
fn lock(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).open(path.join(MARKER))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let why = "is in use by another demo; wait for it to end, or name another folder";
            Err(Error::failed(format!("{} {why}", path.display())).into())
        }
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

fn agree_on_seed(file: &mut File, path: &Path, wanted: Option<u64>) -> Result<u64> {
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    if text.is_empty() {
        let seed = wanted.unwrap_or_else(|| rand::random::<u32>().into());
        file.rewind()?;
        file.write_all(&serde_json::to_vec(&Marker { seed })?)?;
        return Ok(seed);
    }
    let Marker { seed } = serde_json::from_str(&text)
        .map_err(|error| Error::failed(format!("{} is damaged: {error}", path.join(MARKER).display())))?;
    match wanted {
        Some(wanted) if wanted != seed => Err(Error::usage(format!(
            "the demo in {} was started with seed {seed} and cannot continue with {wanted}; omit --seed",
            path.display()
        ))
        .into()),
        _ => Ok(seed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_folder_is_refused_and_left_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("thesis.txt"), "years of work").unwrap();
        let error = Folder::open(Some(folder.path().to_owned()), 10, None).unwrap_err().to_string();
        assert!(error.ends_with("is not empty and not a demo folder; name a new folder, or one of an earlier demo"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn demo_folder_is_locked_and_keeps_its_seed() {
        let folder = tempfile::tempdir().unwrap();
        let open = |seed| Folder::open(Some(folder.path().to_owned()), 10, seed);
        let first = open(Some(7)).unwrap();
        assert!(open(None).unwrap_err().to_string().contains("is in use by another demo"));
        drop(first);
        assert_eq!(open(None).unwrap().story().seed, 7);
        assert!(open(Some(8)).unwrap_err().to_string().contains("was started with seed 7"));
    }

    #[test]
    fn temporary_folder_is_removed_unless_kept() {
        let folder = Folder::open(None, 10, None).unwrap();
        let path = folder.path().to_owned();
        drop(folder);
        assert!(!path.exists());

        let mut folder = Folder::open(None, 10, None).unwrap();
        folder.keep();
        let path = folder.path().to_owned();
        drop(folder);
        assert!(path.exists());
        fs::remove_dir_all(path).unwrap();
    }
}
