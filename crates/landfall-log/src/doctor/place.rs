//! The disk that a log is on.

use std::path::Path;

use landfall_core::{FileSystem, FileSystemKind, Finding, Rank, Result};

const FILE_SYSTEM: (&str, Rank) = ("log.file-system", Rank::Loss);
const DISK: (&str, Rank) = ("log.disk-full", Rank::Latency);

const MIB: u64 = 1024 * 1024;

pub(super) fn disk(folder: &Path) -> Result<Vec<Finding>> {
    let Some(disk) = file_system(folder)? else { return Ok(Vec::new()) };
    let (about, mut findings) = (folder.display().to_string(), Vec::new());
    // A remote one may sync as it should, and the lock is only about processes of this machine: nothing known, nothing said.
    if let FileSystemKind::Memory(name) = disk.kind {
        let what = format!(
            "the log is on {name}, which is memory: every message is gone after a restart of the machine or container"
        );
        findings.push(Finding::new(FILE_SYSTEM, &about, what, "move the folder to a disk"));
    }
    if disk.is_nearly_full() {
        let what = format!(
            "{} MiB of {} MiB are free where the log is: when it is full, messages wait in the outbox until there is room",
            disk.free_bytes / MIB,
            disk.total_bytes / MIB
        );
        findings.push(Finding::new(
            DISK,
            &about,
            what,
            "make room, or give topics a retention: landfall topic configure",
        ));
    }
    Ok(findings)
}

#[cfg(target_os = "linux")]
fn file_system(folder: &Path) -> Result<Option<FileSystem>> {
    let found = match rustix::fs::statfs(folder) {
        Ok(found) => found,
        // A log on a disk that a test made up.
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(crate::durable::failed("look at", folder)(error.into())),
    };
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_bsize as u64);
    let kind = FileSystemKind::from_linux_magic(found.f_type as u64);
    Ok(Some(FileSystem { kind, free_bytes: bytes(found.f_bavail), total_bytes: bytes(found.f_blocks) }))
}

/// Nobody else is asked in a portable way.
#[cfg(not(target_os = "linux"))]
fn file_system(_folder: &Path) -> Result<Option<FileSystem>> {
    Ok(None)
}
