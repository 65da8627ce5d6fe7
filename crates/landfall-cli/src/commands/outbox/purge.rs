//! `landfall outbox purge`.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use landfall::{Housekeeping, OutboxDetail};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::output::Output;
use crate::payload::Payload;
use crate::units;

/// Remove sent messages that were kept, in small steps that hold nobody up.
///
/// Only what was sent goes; `landfall serve` does the same by itself as retention.sent says. Interrupted, it has removed
/// what it counted so far.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall outbox purge --sent-before 7d
  landfall outbox purge --sent-before 7d --archive sent-2026-11.jsonl
  landfall outbox purge --sent-before 0 --json")]
pub(super) struct Purge {
    /// Sent longer ago than this: 7d, 36h, 90s; 0 for all of them.
    #[arg(long, value_name = "AGE", value_parser = age)]
    sent_before: Duration,
    /// Write them to the end of this file first, one JSON object a line, as `outbox show --json` has them. A message
    /// is removed when its line is on the disk: after a crash one may stand there twice, and none is gone from both.
    #[arg(long, value_name = "FILE")]
    archive: Option<PathBuf>,
    /// One JSON object: removed, and archived where --archive is given.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Default, Serialize)]
struct Done {
    removed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    archived: Option<u64>,
}

/// Removed in one transaction.
const STEP: u64 = 1000;
/// The same with an archive: payloads are in memory then, and one may be large.
const PAGE: u64 = 200;

fn age(text: &str) -> std::result::Result<Duration, String> {
    units::age(text).map_err(|wanted| format!("it {wanted}"))
}

impl Purge {
    pub(super) async fn run(self, housekeeping: &dyn Housekeeping) -> Result<()> {
        // Draws nothing where stderr is not a terminal.
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
                    archive.add(&old)?;
                    let rows: Vec<_> = old.iter().map(|detail| detail.row.row).collect();
                    done.removed += housekeeping.remove_these_sent(&rows).await?;
                    done.archived = done.archived.map(|archived| archived + old.len() as u64);
                    (old.len() as u64) < PAGE
                }
                None => {
                    let step = housekeeping.remove_sent(self.sent_before, STEP).await?;
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

/// Where removed messages go: the end of a file.
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
            // A line that was never finished is of nobody who was removed; the next one does not continue it.
            if file.metadata()?.len() > 0 {
                file.seek(SeekFrom::End(-1))?;
                let mut last = [0];
                file.read_exact(&mut last)?;
                if last != *b"\n" {
                    file.write_all(b"\n")?;
                }
            }
            // The name of a new file is on the disk when its folder is.
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
            Ok(file)
        };
        let file = opened().map_err(|error| cannot(path, error))?;
        Ok(Self { path, file })
    }

    /// They are on the disk afterwards.
    fn add(&mut self, details: &[OutboxDetail]) -> Result<()> {
        if details.is_empty() {
            return Ok(());
        }
        let mut lines = Vec::new();
        for detail in details {
            let line = Line { detail, payload: Payload::of(&detail.payload) };
            serde_json::to_writer(&mut lines, &line).map_err(|error| cannot(self.path, error.into()))?;
            lines.push(b'\n');
        }
        let written = self.file.write_all(&lines).and_then(|()| self.file.sync_data());
        written.map_err(|error| cannot(self.path, error))
    }
}

fn cannot(path: &Path, error: std::io::Error) -> Error {
    Error::not_so(format!("nothing more is removed, since the archive {} cannot be written: {error}", path.display()))
}
