//! Checks of memory limits.

use landfall_core::{Finding, Rank};

use super::finding;
use super::state::ServerState;

/// With a smaller output buffer limit Redis closes connections that fetch large messages.
const MIN_OUTPUT_BUFFER: u64 = 64 * 1024 * 1024;

pub(super) fn check(state: &ServerState) -> Vec<Finding> {
    [eviction(state), nearly_full(state), output_buffer(state)].into_iter().flatten().collect()
}

fn eviction(state: &ServerState) -> Option<Finding> {
    let policy = state.setting("maxmemory-policy").filter(|policy| *policy != "noeviction")?;
    (state.number("maxmemory")? > 0).then(|| {
        // Streams have no expiry, but leases and remembered ids do.
        let (rank, what) = match policy.starts_with("allkeys") {
            true => (Rank::Loss, "Redis evicts whole streams, read or not"),
            false => (Rank::Order, "Redis evicts leases and remembered ids before they expire"),
        };
        finding(
            "redis.eviction",
            rank,
            "maxmemory-policy",
            format!("maxmemory-policy is {policy}: when memory is short, {what}"),
            "maxmemory-policy noeviction",
        )
    })
}

fn nearly_full(state: &ServerState) -> Option<Finding> {
    let (used, limit) = (state.number("used_memory")?, state.number("maxmemory").filter(|limit| *limit > 0)?);
    (used >= limit / 10 * 9).then(|| {
        finding(
            "redis.memory",
            Rank::Latency,
            "maxmemory",
            format!("{used} of {limit} bytes are in use: Redis refuses messages soon, or already does"),
            "a higher maxmemory, a shorter retention= or dedup=, or consumers that keep up",
        )
    })
}

/// Parses `normal 0 0 0 slave … pubsub …`: class, hard limit, soft limit, seconds.
fn output_buffer(state: &ServerState) -> Option<Finding> {
    let words: Vec<&str> = state.setting("client-output-buffer-limit")?.split_whitespace().collect();
    let normal = words.iter().position(|word| *word == "normal")?;
    let limits = words.get(normal + 1..normal + 3)?.iter().filter_map(|limit| limit.parse::<u64>().ok());
    let smallest = limits.filter(|limit| *limit > 0).min()?;
    (smallest < MIN_OUTPUT_BUFFER).then(|| {
        finding(
            "redis.output-buffer",
            Rank::Latency,
            "client-output-buffer-limit",
            format!("Redis closes a connection with {smallest} unsent bytes: large messages may never arrive"),
            "client-output-buffer-limit normal 0 0 0",
        )
    })
}
