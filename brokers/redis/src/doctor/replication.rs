//! Whether what was accepted survives the loss of a machine.

use landfall_core::{Finding, Rank};

use super::finding;
use super::seen::Seen;
use crate::config::Options;

/// A replica that said nothing for so many seconds is behind.
const LAG_SECONDS: u64 = 10;
/// So is one that lacks so many bytes.
const LAG_BYTES: u64 = 16 * 1024 * 1024;

pub(super) fn check(seen: &Seen, options: &Options) -> Vec<Finding> {
    let mut findings: Vec<_> = [role(seen), no_replica(seen), not_waited_for(seen, options), too_few(seen, options)]
        .into_iter()
        .flatten()
        .collect();
    findings.extend(lag(seen, options));
    findings
}

fn role(seen: &Seen) -> Option<Finding> {
    (seen.info("role")? != "master").then(|| {
        finding(
            "redis.role",
            Rank::Latency,
            "role",
            "this server is a replica: it takes no messages",
            "name the master in the URL, or all servers with commas",
        )
    })
}

fn no_replica(seen: &Seen) -> Option<Finding> {
    (seen.info("role")? == "master" && seen.number("connected_slaves")? == 0).then(|| {
        finding(
            "redis.replica",
            Rank::Loss,
            "connected_slaves",
            "there is no replica: with the disk of this machine every message is gone",
            "start a second Redis with replicaof, and put replicas=1 into the URL",
        )
    })
}

fn not_waited_for(seen: &Seen, options: &Options) -> Option<Finding> {
    (options.replicas == 0 && seen.number("connected_slaves")? > 0).then(|| {
        finding(
            "redis.replicas-not-waited-for",
            Rank::Loss,
            "replicas",
            "messages are accepted before a replica has them: a failover loses the last ones",
            "replicas=1 in the URL",
        )
    })
}

fn too_few(seen: &Seen, options: &Options) -> Option<Finding> {
    let there = seen.number("connected_slaves")?;
    (options.replicas > 0 && there > 0 && there < u64::from(options.replicas)).then(|| {
        finding(
            "redis.replicas-missing",
            Rank::Latency,
            "replicas",
            format!("the URL asks for {} replicas and {there} are connected: no message is accepted", options.replicas),
            "start the missing replicas, or ask for fewer",
        )
    })
}

fn lag(seen: &Seen, options: &Options) -> Vec<Finding> {
    let written = seen.number("master_repl_offset").unwrap_or(0);
    let replicas = seen.replicas().into_iter().filter_map(|replica| {
        let told = |name: &str| replica.get(name).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
        let missing = written.saturating_sub(told("offset"));
        let is_online = replica.get("state").is_some_and(|state| *state == "online");
        if is_online && told("lag") <= LAG_SECONDS && missing <= LAG_BYTES {
            return None;
        }
        let rank = if options.replicas > 0 { Rank::Latency } else { Rank::Loss };
        let about = format!("{}:{}", replica.get("ip").unwrap_or(&"?"), replica.get("port").unwrap_or(&"?"));
        let what = format!(
            "this replica is behind by {missing} bytes and was last heard of {} seconds ago: a failover to it loses what it \
             lacks",
            told("lag")
        );
        Some(finding("redis.replica-lag", rank, about, what, "look at the network and the load of the replica"))
    });
    replicas.collect()
}
