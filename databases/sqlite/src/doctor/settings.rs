//! How the connections are set up. Those that `Sqlite::open` makes are safe; a caller's own pool may be otherwise.

use landfall_core::{Finding, Rank, Result};

use super::Checkup;

const MEMORY: (&str, Rank) = ("sqlite.in-memory", Rank::Loss);
const SYNCHRONOUS: (&str, Rank) = ("sqlite.synchronous", Rank::Loss);
const JOURNAL: &str = "sqlite.journal-mode";
const LOCKING: (&str, Rank) = ("sqlite.locking-mode", Rank::Latency);

pub(super) fn in_memory() -> Finding {
    let what = "the database is in memory: everything in it is gone with the process";
    Finding::new(MEMORY, "database", what, "name a file in the URL: sqlite:path/to/file.db")
}

/// With a write-ahead log, anything below FULL answers a commit before it is on disk.
pub(super) async fn synchronous(checkup: &mut Checkup<'_>) -> Result<Option<Finding>> {
    let (level,): (i64,) = checkup.ask("PRAGMA synchronous").await?;
    let name = match level {
        0 => "OFF",
        1 => "NORMAL",
        _ => return Ok(None),
    };
    let what = format!(
        "synchronous is {name}: a commit is answered before it is on disk, and a power cut takes back the last ones: \
         messages, and effects that were acknowledged to the broker already"
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
    let what =
        "locking_mode is exclusive: no other connection gets at the file, and what waits for it fails after a while";
    let judge =
        || Finding::new(LOCKING, "locking_mode", what, "PRAGMA locking_mode = NORMAL, on every connection of the pool");
    Ok((mode != "normal").then(judge))
}
