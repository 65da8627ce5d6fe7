//! The disk of a log.

use std::path::Path;

use landfall_core::adapter::{FileSystem, FileSystemKind};
use landfall_core::{Finding, Rank, Result};

const FILE_SYSTEM: (&str, Rank) = ("log.file-system", Rank::Loss);
const DISK: (&str, Rank) = ("log.disk-full", Rank::Latency);

const MIB: u64 = 1024 * 1024;

pub(super) fn diagnose(folder: &Path) -> Result<Vec<Finding>> {
    let Some(disk) = file_system(folder)? else { return Ok(Vec::new()) };
    let (about, mut findings) = (folder.display().to_string(), Vec::new());
    // A network file system may sync correctly, and the lock only excludes processes of this machine, so there is no
    // finding.
    if let FileSystemKind::Memory(name) = disk.kind {
        let what = format!(
            "the log is on {name}, which is memory: all messages are lost when the machine or container restarts"
        );
        findings.push(Finding::new(FILE_SYSTEM, &about, what, "move the folder to a disk"));
    }
    if disk.is_nearly_full() {
        let what = format!(
            "{} MiB of {} MiB are free on the log's disk: when it is full, messages wait in the outbox until there is \
             space",
            disk.free_bytes / MIB,
            disk.total_bytes / MIB
        );
        findings.push(Finding::new(
            DISK,
            &about,
            what,
            "free disk space, or set a retention on topics: landfall topic configure",
        ));
    }
    Ok(findings)
}

#[cfg(target_os = "linux")]
fn file_system(folder: &Path) -> Result<Option<FileSystem>> {
    let found = match rustix::fs::statfs(folder) {
        Ok(found) => found,
        // A log on a test's simulated disk.
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(crate::durable::failed("read the file system of", folder)(error.into())),
    };
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_bsize as u64);
    let kind = FileSystemKind::from_linux_magic(found.f_type as u64);
    Ok(Some(FileSystem { kind, free_bytes: bytes(found.f_bavail), total_bytes: bytes(found.f_blocks) }))
}

/// Other systems have no portable call for this.
#[cfg(not(target_os = "linux"))]
fn file_system(_folder: &Path) -> Result<Option<FileSystem>> {
    Ok(None)
}
