//! Settings of the connections. Those of `Sqlite::open` are safe; those of a caller's own pool may not be.

use landfall_core::{Finding, Rank, Result};

use super::Checkup;

const MEMORY: (&str, Rank) = ("sqlite.in-memory", Rank::Loss);
const SYNCHRONOUS: (&str, Rank) = ("sqlite.synchronous", Rank::Loss);
const JOURNAL: &str = "sqlite.journal-mode";
const LOCKING: (&str, Rank) = ("sqlite.locking-mode", Rank::Latency);

pub(super) fn in_memory() -> Finding {
    let what = "the database is in memory: everything in it is lost with the process";
    Finding::new(MEMORY, "database", what, "name a file in the URL: sqlite:path/to/file.db")
}

/// With a write-ahead log, commits below FULL return before they are on disk.
pub(super) async fn synchronous(checkup: &mut Checkup<'_>) -> Result<Option<Finding>> {
    let (level,): (i64,) = checkup.ask("PRAGMA synchronous").await?;
    let name = match level {
        0 => "OFF",
        1 => "NORMAL",
        _ => return Ok(None),
    };
    let what = format!(
        "synchronous is {name}: commits return before they are on disk, and a power cut loses the last ones: \
         messages, and effects that were already acknowledged to the broker"
    );
    Ok(Some(Finding::new(
        SYNCHRONOUS,
        "synchronous",
        what,
        "PRAGMA synchronous = FULL, on every connection of the pool",
    )))
}

pub(super) async fn journal(checkup: &mut Checkup<'_>) -> Result<Option<Finding>> {
    let (mode,): (String,) = checkup.ask("PRAGMA journal_mode").await?;
    let (rank, so_that) = match mode.as_str() {
        "wal" => return Ok(None),
        "off" | "memory" => (Rank::Loss, "a crash in the middle of a commit damages the file"),
        _ => (Rank::Latency, "readers and writers wait for each other, and each commit costs several syncs"),
    };
    let what = format!("journal_mode is {mode}: {so_that}");
    Ok(Some(Finding::new((JOURNAL, rank), "journal_mode", what, "PRAGMA journal_mode = WAL, once")))
}

pub(super) async fn locking(checkup: &mut Checkup<'_>) -> Result<Option<Finding>> {
    let (mode,): (String,) = checkup.ask("PRAGMA locking_mode").await?;
    let what = "locking_mode is exclusive: no other connection can use the file, and waiting calls fail after a while";
    let judge =
        || Finding::new(LOCKING, "locking_mode", what, "PRAGMA locking_mode = NORMAL, on every connection of the pool");
    Ok((mode != "normal").then(judge))
}
