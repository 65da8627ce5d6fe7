//! Checks of replication: whether accepted messages survive the loss of a machine.

use landfall_core::{Finding, Rank};

use super::finding;
use super::state::ServerState;
use crate::config::Options;

/// A replica that was silent for this many seconds lags.
const LAG_SECONDS: u64 = 10;
/// A replica that lacks this many bytes lags.
const LAG_BYTES: u64 = 16 * 1024 * 1024;

pub(super) fn check(state: &ServerState, options: &Options) -> Vec<Finding> {
    let mut findings: Vec<_> =
        [role(state), no_replica(state), not_waited_for(state, options), too_few(state, options)]
            .into_iter()
            .flatten()
            .collect();
    findings.extend(lag(state, options));
    findings
}

fn role(state: &ServerState) -> Option<Finding> {
    (state.info("role")? != "master").then(|| {
        finding(
            "redis.role",
            Rank::Latency,
            "role",
            "this server is a replica: it accepts no messages",
            "set the master in the URL, or all servers separated by commas",
        )
    })
}

fn no_replica(state: &ServerState) -> Option<Finding> {
    (state.info("role")? == "master" && state.number("connected_slaves")? == 0).then(|| {
        finding(
            "redis.replica",
            Rank::Loss,
            "connected_slaves",
            "there is no replica: all messages are lost with this machine's disk",
            "start a second Redis with replicaof, and set replicas=1 in the URL",
        )
    })
}

fn not_waited_for(state: &ServerState, options: &Options) -> Option<Finding> {
    (options.replicas == 0 && state.number("connected_slaves")? > 0).then(|| {
        finding(
            "redis.replicas-not-waited-for",
            Rank::Loss,
            "replicas",
            "messages are accepted before a replica has them: a failover loses the most recent ones",
            "replicas=1 in the URL",
        )
    })
}

fn too_few(state: &ServerState, options: &Options) -> Option<Finding> {
    let connected = state.number("connected_slaves")?;
    (options.replicas > 0 && connected > 0 && connected < u64::from(options.replicas)).then(|| {
        finding(
            "redis.replicas-missing",
            Rank::Latency,
            "replicas",
            format!(
                "the URL requires {} replicas and {connected} are connected: no message is accepted",
                options.replicas
            ),
            "start the missing replicas, or set a lower replicas= in the URL",
        )
    })
}

fn lag(state: &ServerState, options: &Options) -> Vec<Finding> {
    let written = state.number("master_repl_offset").unwrap_or(0);
    let replicas = state.replicas().into_iter().filter_map(|replica| {
        let field = |name: &str| replica.get(name).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
        let missing = written.saturating_sub(field("offset"));
        let is_online = replica.get("state").is_some_and(|state| *state == "online");
        if is_online && field("lag") <= LAG_SECONDS && missing <= LAG_BYTES {
            return None;
        }
        let rank = if options.replicas > 0 { Rank::Latency } else { Rank::Loss };
        let about = format!("{}:{}", replica.get("ip").unwrap_or(&"?"), replica.get("port").unwrap_or(&"?"));
        let what = format!(
            "this replica lags by {missing} bytes and was last seen {} seconds ago: a failover to it loses messages",
            field("lag")
        );
        Some(finding("redis.replica-lag", rank, about, what, "check the network and the load of the replica"))
    });
    replicas.collect()
}
