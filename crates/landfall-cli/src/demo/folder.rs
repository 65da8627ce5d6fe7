//! The folder in which a story takes place: temporary, or one that the user wants to keep.
//!
//! ```text
//! landfall-demo.json                    says that the folder is a demo's, with its seed; locked while one is running
//! orders.db   stock.db   payment.db     one database for each service
//! log/                                  the embedded log
//! world.log                             what the child process had to say
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

/// A folder that is ours for as long as this value lives.
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
    /// Takes `data`, or a temporary folder where none is given. A demo's folder that was used before goes on with
    /// the seed it began with; anybody else's folder is refused and left alone.
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

    /// Keeps the folder even if it is a temporary one, for whoever wants to know what happened in it.
    pub(crate) fn keep(&mut self) {
        if let Some(folder) = self.temporary.as_mut() {
            folder.disable_cleanup(true);
        }
    }

    /// Where the child process writes what it has to say, one life after the other.
    pub(super) fn world_log(&self) -> std::io::Result<File> {
        OpenOptions::new().create(true).append(true).open(self.path.join(WORLD_LOG))
    }

    pub(super) fn world_log_path(&self) -> PathBuf {
        self.path.join(WORLD_LOG)
    }

    pub(super) fn note_crash(&self) -> std::io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(self.path.join(CRASHES))?;
        writeln!(file, "{} SIGKILL", landfall::Timestamp::now())
    }

    /// Every crash in this folder, those of earlier runs among them.
    pub(super) fn crashes(&self) -> std::io::Result<u64> {
        match fs::read_to_string(self.path.join(CRASHES)) {
            Ok(text) => Ok(text.lines().count() as u64),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        }
    }
}

/// Makes the folder where it is missing, and refuses one that holds somebody else's files.
fn prepare(path: &Path) -> Result<()> {
    let refuse = |why: &str| Error::wrong_use(format!("{} {why}", path.display()));
    fs::create_dir_all(path).map_err(|error| refuse(&format!("cannot be made a folder: {error}")))?;
    let mut entries = fs::read_dir(path).map_err(|error| refuse(&format!("cannot be read: {error}")))?;
    if !path.join(MARKER).exists() && entries.next().is_some() {
        return Err(refuse("is not empty and holds no demo; name a new folder, or one of an earlier demo").into());
    }
    Ok(())
}

/// The system lets go of the lock when this process dies, however it dies.
fn lock(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).open(path.join(MARKER))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let why = "is in use by another demo; wait for it to end, or name another folder";
            Err(Error::not_so(format!("{} {why}", path.display())).into())
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
        .map_err(|error| Error::not_so(format!("{} is damaged: {error}", path.join(MARKER).display())))?;
    match wanted {
        Some(wanted) if wanted != seed => Err(Error::wrong_use(format!(
            "the story in {} began with seed {seed} and cannot go on with {wanted}; leave --seed out",
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
    fn a_folder_of_somebody_else_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("thesis.txt"), "years of work").unwrap();
        let error = Folder::open(Some(folder.path().to_owned()), 10, None).unwrap_err().to_string();
        assert!(error.ends_with("is not empty and holds no demo; name a new folder, or one of an earlier demo"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_is_one_demos_at_a_time_and_keeps_its_seed() {
        let folder = tempfile::tempdir().unwrap();
        let open = |seed| Folder::open(Some(folder.path().to_owned()), 10, seed);
        let first = open(Some(7)).unwrap();
        assert!(open(None).unwrap_err().to_string().contains("is in use by another demo"));
        drop(first);
        assert_eq!(open(None).unwrap().story().seed, 7);
        assert!(open(Some(8)).unwrap_err().to_string().contains("began with seed 7"));
    }

    #[test]
    fn a_temporary_folder_goes_with_its_demo_unless_it_is_kept() {
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
