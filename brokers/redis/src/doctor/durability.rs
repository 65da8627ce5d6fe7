//! Whether what was accepted is on disk, and stays writable.

use landfall_core::{Finding, Rank};

use super::finding;
use super::seen::Seen;

pub(super) fn check(seen: &Seen) -> Vec<Finding> {
    [append_only(seen), sync(seen), sync_on_rewrite(seen), last_write(seen), rewrite(seen), snapshot(seen)]
        .into_iter()
        .flatten()
        .collect()
}

fn append_only(seen: &Seen) -> Option<Finding> {
    (seen.setting("appendonly")? == "no").then(|| {
        finding(
            "redis.appendonly",
            Rank::Loss,
            "appendonly",
            "nothing is written to an append-only file: a restart loses every message since the last snapshot, or all of them",
            "appendonly yes",
        )
    })
}

fn sync(seen: &Seen) -> Option<Finding> {
    let policy = seen.setting("appendfsync").filter(|policy| *policy != "always")?;
    (seen.setting("appendonly")? == "yes").then(|| {
        let window = if policy == "no" { "whatever the system had not written yet" } else { "the last second or two" };
        finding(
            "redis.appendfsync",
            Rank::Loss,
            "appendfsync",
            format!(
                "appendfsync is {policy}: messages are accepted before they are on disk, and a power cut loses {window}"
            ),
            "appendfsync always",
        )
    })
}

fn sync_on_rewrite(seen: &Seen) -> Option<Finding> {
    (seen.setting("no-appendfsync-on-rewrite")? == "yes").then(|| {
        finding(
            "redis.no-appendfsync-on-rewrite",
            Rank::Loss,
            "no-appendfsync-on-rewrite",
            "nothing is synced while the append-only file is rewritten, whatever appendfsync says",
            "no-appendfsync-on-rewrite no",
        )
    })
}

fn last_write(seen: &Seen) -> Option<Finding> {
    (seen.info("aof_last_write_status")? != "ok").then(|| {
        finding(
            "redis.aof-write",
            Rank::Loss,
            "aof_last_write_status",
            "the last write to the append-only file failed: Redis takes nothing more, and what it has is in memory only",
            "make room on the disk of Redis, or mend it",
        )
    })
}

fn rewrite(seen: &Seen) -> Option<Finding> {
    (seen.info("aof_last_bgrewrite_status")? != "ok").then(|| {
        finding(
            "redis.aof-rewrite",
            Rank::Latency,
            "aof_last_bgrewrite_status",
            "the last rewrite of the append-only file failed: it grows until the disk is full",
            "look into the log of Redis, make room on its disk, then BGREWRITEAOF",
        )
    })
}

fn snapshot(seen: &Seen) -> Option<Finding> {
    (seen.info("rdb_last_bgsave_status")? != "ok").then(|| {
        let refuses = seen.setting("stop-writes-on-bgsave-error").is_none_or(|answer| answer == "yes");
        let so = if refuses { "Redis takes no messages until one succeeds" } else { "there is no fresh snapshot" };
        finding(
            "redis.snapshot",
            Rank::Latency,
            "rdb_last_bgsave_status",
            format!("the last snapshot failed: {so}"),
            "look into the log of Redis, make room on its disk, then BGSAVE",
        )
    })
}
