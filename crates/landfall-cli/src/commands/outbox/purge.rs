//! `landfall outbox purge`.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use landfall::housekeeping::Expiring;
use landfall::{Housekeeping, OutboxDetail};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::output::Output;
use crate::payload::Payload;
use crate::units;

/// Remove old sent messages from the outbox, in small transactions.
///
/// Removes only messages in the state sent; `landfall serve` does so automatically after retention.sent. An interrupted
/// purge keeps what it has removed so far.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall outbox purge --sent-before 7d
  landfall outbox purge --sent-before 7d --archive sent-2026-11.jsonl
  landfall outbox purge --sent-before 0 --json")]
pub(super) struct Purge {
    /// Remove messages sent longer ago than this: 7d, 36h, 90s; 0 for all.
    #[arg(long, value_name = "AGE", value_parser = age)]
    sent_before: Duration,
    /// Append each message to this file first, one JSON object per line with the fields of `outbox show --json`. A
    /// message is removed after its line is fsynced: a crash may leave it in both places, never in neither.
    #[arg(long, value_name = "FILE")]
    archive: Option<PathBuf>,
    /// Print one JSON object: removed, and archived with --archive.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Default, Serialize)]
struct Done {
    removed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    archived: Option<u64>,
}

/// Rows removed in one transaction.
const STEP: u64 = 1000;
/// Rows removed in one transaction with an archive; smaller, since their payloads are in memory.
const PAGE: u64 = 200;

fn age(text: &str) -> std::result::Result<Duration, String> {
    units::age(text).map_err(|wanted| format!("it {wanted}"))
}

impl Purge {
    pub(super) async fn run(self, housekeeping: &dyn Housekeeping) -> Result<()> {
        // Draws nothing if stderr is not a terminal.
        let bar = ProgressBar::no_length();
        if let Ok(style) = ProgressStyle::with_template("  {spinner} {human_pos} removed  {elapsed}  {per_sec}") {
            bar.set_style(style);
        }
        let mut archive = self.archive.as_deref().map(Archive::open).transpose()?;
        let mut done = Done { archived: archive.is_some().then_some(0), ..Done::default() };
        loop {
            let is_last = match &mut archive {
                Some(archive) => {
                    let old = housekeeping.old_sent(self.sent_before, PAGE).await?;
                    archive.append(&old)?;
                    let rows: Vec<_> = old.iter().map(|detail| detail.row.row).collect();
                    done.removed += housekeeping.remove_these_sent(&rows).await?;
                    done.archived = done.archived.map(|archived| archived + old.len() as u64);
                    (old.len() as u64) < PAGE
                }
                None => {
                    let step = housekeeping.remove_expired(Expiring::Sent, self.sent_before, STEP).await?;
                    done.removed += step;
                    step < STEP
                }
            };
            bar.set_position(done.removed);
            if is_last {
                break;
            }
        }
        bar.finish_and_clear();
        let mut output = Output::new();
        match (self.json, done.archived) {
            (true, _) => output.json(&done)?,
            (false, None) => output.line(&format!("{} removed", HumanCount(done.removed)))?,
            (false, Some(archived)) => {
                output.line(&format!("{} archived, {} removed", HumanCount(archived), HumanCount(done.removed)))?;
            }
        }
        output.flush()
    }
}

/// The file to which removed messages are appended.
struct Archive<'a> {
    path: &'a Path,
    file: File,
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    detail: &'a OutboxDetail,
    #[serde(flatten)]
    payload: Payload,
}

impl<'a> Archive<'a> {
    fn open(path: &'a Path) -> Result<Self> {
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
        let file = opened().map_err(|error| archive_error(path, error))?;
        Ok(Self { path, file })
    }

    /// Appends the messages and fsyncs the file.
    fn append(&mut self, details: &[OutboxDetail]) -> Result<()> {
        if details.is_empty() {
            return Ok(());
        }
        let mut lines = Vec::new();
        for detail in details {
            let line = Line { detail, payload: Payload::from_bytes(&detail.payload) };
            serde_json::to_writer(&mut lines, &line).map_err(|error| archive_error(self.path, error.into()))?;
            lines.push(b'\n');
        }
        let written = self.file.write_all(&lines).and_then(|()| self.file.sync_data());
        written.map_err(|error| archive_error(self.path, error))
    }
}

fn archive_error(path: &Path, error: std::io::Error) -> Error {
    Error::failed(format!("cannot write the archive {}, so nothing more is removed: {error}", path.display()))
}
