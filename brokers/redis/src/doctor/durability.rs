//! Checks of durability: whether accepted messages are on disk, and whether writes to disk succeed.

use landfall_core::{Finding, Rank};

use super::finding;
use super::state::ServerState;

pub(super) fn check(state: &ServerState) -> Vec<Finding> {
    [append_only(state), sync(state), sync_on_rewrite(state), last_write(state), rewrite(state), snapshot(state)]
        .into_iter()
        .flatten()
        .collect()
}

fn append_only(state: &ServerState) -> Option<Finding> {
    (state.setting("appendonly")? == "no").then(|| {
        finding(
            "redis.appendonly",
            Rank::Loss,
            "appendonly",
            "there is no append-only file: a restart loses every message since the last snapshot, or all of them",
            "appendonly yes",
        )
    })
}

fn sync(state: &ServerState) -> Option<Finding> {
    let policy = state.setting("appendfsync").filter(|policy| *policy != "always")?;
    (state.setting("appendonly")? == "yes").then(|| {
        let window = if policy == "no" { "what the system had not written yet" } else { "the last second or two" };
        finding(
            "redis.appendfsync",
            Rank::Loss,
            "appendfsync",
            format!(
                "appendfsync is {policy}: messages are accepted before they are on disk; a power failure loses {window}"
            ),
            "appendfsync always",
        )
    })
}

fn sync_on_rewrite(state: &ServerState) -> Option<Finding> {
    (state.setting("no-appendfsync-on-rewrite")? == "yes").then(|| {
        finding(
            "redis.no-appendfsync-on-rewrite",
            Rank::Loss,
            "no-appendfsync-on-rewrite",
            "writes are not synced while the append-only file is rewritten, even with appendfsync always",
            "no-appendfsync-on-rewrite no",
        )
    })
}

fn last_write(state: &ServerState) -> Option<Finding> {
    (state.info("aof_last_write_status")? != "ok").then(|| {
        finding(
            "redis.aof-write",
            Rank::Loss,
            "aof_last_write_status",
            "the last write to the append-only file failed: Redis refuses writes, and recent ones are in memory only",
            "free space on the disk of Redis, or repair it",
        )
    })
}

fn rewrite(state: &ServerState) -> Option<Finding> {
    (state.info("aof_last_bgrewrite_status")? != "ok").then(|| {
        finding(
            "redis.aof-rewrite",
            Rank::Latency,
            "aof_last_bgrewrite_status",
            "the last rewrite of the append-only file failed: it grows until the disk is full",
            "check the log of Redis, free space on its disk, then BGREWRITEAOF",
        )
    })
}

fn snapshot(state: &ServerState) -> Option<Finding> {
    (state.info("rdb_last_bgsave_status")? != "ok").then(|| {
        let refuses = state.setting("stop-writes-on-bgsave-error").is_none_or(|answer| answer == "yes");
        let effect =
            if refuses { "Redis accepts no messages until one succeeds" } else { "there is no recent snapshot" };
        finding(
            "redis.snapshot",
            Rank::Latency,
            "rdb_last_bgsave_status",
            format!("the last snapshot failed: {effect}"),
            "check the log of Redis, free space on its disk, then BGSAVE",
        )
    })
}
