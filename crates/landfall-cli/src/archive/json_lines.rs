//! Files of JSON lines, to which removed messages are appended.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use landfall::housekeeping::Archive;
use landfall::{Error, ErrorKind, HalfMessageDetail};
use serde::Serialize;

use crate::payload::Payload;

/// An open file of an archive.
pub(crate) struct JsonLines {
    path: PathBuf,
    file: File,
}

impl JsonLines {
    /// Opens or creates the file.
    pub(crate) fn open(path: &Path) -> landfall::Result<Self> {
        let opened = || -> std::io::Result<File> {
            let mut file = OpenOptions::new().create(true).append(true).read(true).open(path)?;
            // A crash may leave an unfinished line; its message was not removed. Terminate it before appending.
            if file.metadata()?.len() > 0 {
                file.seek(SeekFrom::End(-1))?;
                let mut last = [0];
                file.read_exact(&mut last)?;
                if last != *b"\n" {
                    file.write_all(b"\n")?;
                }
            }
            // A new file is durable only once its folder is fsynced.
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
            Ok(file)
        };
        let file = opened().map_err(|error| cannot_write(path, error))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Appends a line each and fsyncs the file.
    pub(crate) fn append<T: Serialize>(&mut self, objects: impl Iterator<Item = T>) -> landfall::Result<()> {
        let mut lines = Vec::new();
        for object in objects {
            serde_json::to_writer(&mut lines, &object).map_err(|error| cannot_write(&self.path, error.into()))?;
            lines.push(b'\n');
        }
        if lines.is_empty() {
            return Ok(());
        }
        let written = self.file.write_all(&lines).and_then(|()| self.file.sync_data());
        written.map_err(|error| cannot_write(&self.path, error))
    }
}

fn cannot_write(path: &Path, error: std::io::Error) -> Error {
    let text = format!("cannot write the archive {}, so nothing more is removed: {error}", path.display());
    Error::new(ErrorKind::Internal, text)
}

/// A folder with one file for each day on which half messages were prepared: `half-messages-2026-11-18.jsonl`.
#[derive(Debug)]
pub(crate) struct HalfMessageFolder(PathBuf);

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    detail: &'a HalfMessageDetail,
    #[serde(flatten)]
    payload: Option<Payload>,
}

impl HalfMessageFolder {
    pub(crate) fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    fn append(&self, rows: &[HalfMessageDetail]) -> landfall::Result<()> {
        std::fs::create_dir_all(&self.0).map_err(|error| cannot_write(&self.0, error))?;
        let mut days: BTreeMap<String, Vec<&HalfMessageDetail>> = BTreeMap::new();
        for detail in rows {
            let day = detail.row.prepared_at.to_string().chars().take_while(|letter| *letter != 'T').collect();
            days.entry(day).or_default().push(detail);
        }
        for (day, details) in days {
            let mut file = JsonLines::open(&self.0.join(format!("half-messages-{day}.jsonl")))?;
            file.append(details.into_iter().map(|detail| {
                let payload = detail.payload.as_deref().map(Payload::from_bytes);
                Line { detail, payload }
            }))?;
        }
        Ok(())
    }
}

#[async_trait]
impl Archive<HalfMessageDetail> for HalfMessageFolder {
    async fn store(&self, rows: Vec<HalfMessageDetail>) -> landfall::Result<String> {
        let folder = Self(self.0.clone());
        let appended = tokio::task::spawn_blocking(move || folder.append(&rows)).await;
        appended.map_err(|error| {
            Error::new(ErrorKind::Internal, "the archive of half messages panicked").with_source(error)
        })??;
        Ok(self.0.display().to_string())
    }
}
