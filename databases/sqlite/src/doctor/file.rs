//! The file, its write-ahead log, and their disk.

use std::path::Path;

use landfall_core::adapter::{FileSystem, FileSystemKind};
use landfall_core::{Error, ErrorKind, Finding, Rank, Result};

use super::Checkup;

const CHECKPOINT: (&str, Rank) = ("sqlite.checkpoint", Rank::Latency);
const FILE_SYSTEM: (&str, Rank) = ("sqlite.file-system", Rank::Loss);
const DISK: (&str, Rank) = ("sqlite.disk-full", Rank::Latency);

const MIB: u64 = 1024 * 1024;
/// SQLite checkpoints the write-ahead log at 4 MB; a log that is much larger is blocked.
const LARGE_BYTES: u64 = 64 * MIB;

pub(super) async fn checkpoint(checkup: &mut Checkup<'_>, file: &Path) -> Result<Option<Finding>> {
    let mut log = file.as_os_str().to_owned();
    log.push("-wal");
    // The file never shrinks, so its size only tells whether to ask.
    if std::fs::metadata(&log).map_or(0, |found| found.len()) < LARGE_BYTES {
        return Ok(None);
    }
    // Counts and moves nothing. SQLite before 3.51 treats it as PASSIVE, which moves what no reader blocks.
    let (_, frames, moved): (i64, i64, i64) = checkup.ask("PRAGMA wal_checkpoint(NOOP)").await?;
    let (page,): (i64,) = checkup.ask("PRAGMA page_size").await?;
    let waiting = (frames - moved).max(0).unsigned_abs() * page.unsigned_abs();
    let judge = || {
        let what = format!(
            "{} MiB of the write-ahead log are not in the file yet: a long transaction blocks the checkpoint, every \
             read gets slower and the disk fills",
            waiting / MIB
        );
        let mend = "end the connection with the open transaction; PRAGMA wal_autocheckpoint must not be 0";
        Finding::new(CHECKPOINT, Path::new(&log).display().to_string(), what, mend)
    };
    Ok((waiting >= LARGE_BYTES).then(judge))
}

pub(super) fn disk(file: &Path) -> Result<Vec<Finding>> {
    let Some(disk) = file_system(file)? else { return Ok(Vec::new()) };
    let (about, mut findings) = (file.display().to_string(), Vec::new());
    let unsafe_place = match disk.kind {
        FileSystemKind::Local => None,
        FileSystemKind::Memory(name) => Some(format!(
            "the database is on {name}, which is memory: everything in it is lost in a restart of the machine or \
             container"
        )),
        FileSystemKind::Remote(name) => Some(format!(
            "the database is on {name}, where locks and syncs depend on another machine or program: a write-ahead log \
             does not work across machines, and two writers damage the file"
        )),
    };
    if let Some(what) = unsafe_place {
        findings.push(Finding::new(FILE_SYSTEM, &about, what, "move the file to a disk of this machine"));
    }
    if disk.is_nearly_full() {
        let what = format!(
            "{} MiB of {} MiB are free on the database's disk: when it is full, sends and handlers fail until there \
             is space",
            disk.free_bytes / MIB,
            disk.total_bytes / MIB
        );
        findings.push(Finding::new(
            DISK,
            &about,
            what,
            "free space, or keep less: keep_sent, the inbox, dead letters that are done",
        ));
    }
    Ok(findings)
}

#[cfg(target_os = "linux")]
fn file_system(file: &Path) -> Result<Option<FileSystem>> {
    let found = rustix::fs::statfs(file).map_err(|error| {
        let sentence = format!("the file system of {} cannot be read", file.display());
        Error::new(ErrorKind::Unavailable, sentence).with_source(std::io::Error::from(error))
    })?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_bsize as u64);
    let kind = FileSystemKind::from_linux_magic(found.f_type as u64);
    Ok(Some(FileSystem { kind, free_bytes: bytes(found.f_bavail), total_bytes: bytes(found.f_blocks) }))
}

/// Other systems have no portable call for this.
#[cfg(not(target_os = "linux"))]
fn file_system(_file: &Path) -> Result<Option<FileSystem>> {
    Ok(None)
}
