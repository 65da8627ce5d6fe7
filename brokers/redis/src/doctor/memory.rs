//! What happens when memory runs out.

use landfall_core::{Finding, Rank};

use super::finding;
use super::seen::Seen;

/// A connection that is closed with less than this in its buffer cannot fetch large messages.
const SMALLEST_BUFFER: u64 = 64 * 1024 * 1024;

pub(super) fn check(seen: &Seen) -> Vec<Finding> {
    [eviction(seen), nearly_full(seen), output_buffer(seen)].into_iter().flatten().collect()
}

fn eviction(seen: &Seen) -> Option<Finding> {
    let policy = seen.setting("maxmemory-policy").filter(|policy| *policy != "noeviction")?;
    (seen.number("maxmemory")? > 0).then(|| {
        // Streams never expire, but leases and remembered ids do.
        let (rank, what) = match policy.starts_with("allkeys") {
            true => (Rank::Loss, "whole streams are removed, read or not"),
            false => (Rank::Order, "leases and remembered ids are removed before their time"),
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

fn nearly_full(seen: &Seen) -> Option<Finding> {
    let (used, most) = (seen.number("used_memory")?, seen.number("maxmemory").filter(|most| *most > 0)?);
    (used >= most / 10 * 9).then(|| {
        finding(
            "redis.memory",
            Rank::Latency,
            "maxmemory",
            format!("{used} of {most} bytes are in use: soon, or already, no message is taken"),
            "a higher maxmemory, a shorter retention= or dedup=, or consumers that keep up",
        )
    })
}

/// `normal 0 0 0 slave … pubsub …`: class, hard limit, soft limit, seconds.
fn output_buffer(seen: &Seen) -> Option<Finding> {
    let words: Vec<&str> = seen.setting("client-output-buffer-limit")?.split_whitespace().collect();
    let normal = words.iter().position(|word| *word == "normal")?;
    let limits = words.get(normal + 1..normal + 3)?.iter().filter_map(|limit| limit.parse::<u64>().ok());
    let smallest = limits.filter(|limit| *limit > 0).min()?;
    (smallest < SMALLEST_BUFFER).then(|| {
        finding(
            "redis.output-buffer",
            Rank::Latency,
            "client-output-buffer-limit",
            format!("a connection is closed with {smallest} bytes on their way: large messages may never arrive"),
            "client-output-buffer-limit normal 0 0 0",
        )
    })
}
