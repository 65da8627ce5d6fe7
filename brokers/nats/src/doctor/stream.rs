//! What a topic's stream is set to, one small function per check.

use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, RetentionPolicy, StorageType};
use landfall_core::{Demands, Finding, Rank, Span};

use crate::topic::Topic;

/// A relay that got no answer sends again after its timeout and a pause; within so many timeouts it has.
const TIMEOUTS_TO_A_RETRY: u32 = 6;

pub(super) fn diagnose(
    topic: &Topic,
    info: &Info,
    demands: &Demands,
    timeout: Duration,
    takes_batches: bool,
) -> Vec<Finding> {
    let config = &info.config;
    let checks = [
        replicas(config),
        replicas_away(info),
        storage(config),
        discard(config),
        age(config, demands),
        retention(config),
        duplicate_window(config, timeout),
        acknowledgements(config),
        batches(config, takes_batches),
    ];
    let about = || format!("topic {}", topic.name);
    checks
        .into_iter()
        .flatten()
        .map(|Found { check, rank, what, mend }| Finding {
            check,
            rank,
            about: about(),
            what,
            mend: format!("{mend} {}", topic.stream),
        })
        .collect()
}

struct Found {
    check: &'static str,
    rank: Rank,
    what: String,
    /// Ends where the stream's name goes.
    mend: &'static str,
}

fn replicas(config: &Config) -> Option<Found> {
    (config.num_replicas < 3).then(|| Found {
        check: "nats.replicas",
        rank: Rank::Loss,
        what: format!(
            "It is kept by {} server: what was accepted is gone with that server's disk.",
            config.num_replicas
        ),
        mend: "a cluster of three servers, and: nats stream edit --replicas=3",
    })
}

fn replicas_away(info: &Info) -> Option<Found> {
    let away = info.cluster.iter().flat_map(|cluster| &cluster.replicas).filter(|peer| peer.offline || !peer.current);
    let names: Vec<&str> = away.map(|peer| peer.name.as_str()).collect();
    (!names.is_empty()).then(|| Found {
        check: "nats.replica-away",
        rank: Rank::Loss,
        what: format!("{} of its copies are away or behind ({}).", names.len(), names.join(", ")),
        mend: "start the server again, or find out why it falls behind: nats stream info",
    })
}

fn storage(config: &Config) -> Option<Found> {
    (config.storage == StorageType::Memory).then(|| Found {
        check: "nats.memory-storage",
        rank: Rank::Loss,
        what: "It is kept in memory only: what was accepted is gone when the server stops.".into(),
        mend: "make it anew with --storage=file: nats stream add",
    })
}

fn discard(config: &Config) -> Option<Found> {
    let limits = [config.max_bytes, config.max_messages, config.max_messages_per_subject];
    let drops_any = limits.iter().any(|limit| *limit > 0) && config.discard == DiscardPolicy::Old;
    // A limit for each subject drops the oldest under the other policy as well, unless that is said to count for subjects.
    let drops_of_subject = config.max_messages_per_subject > 0 && !config.discard_new_per_subject;
    (drops_any || drops_of_subject).then(|| Found {
        check: "nats.discard-old",
        rank: Rank::Loss,
        what: "It has a limit and drops the oldest messages when it is reached, read or not.".into(),
        mend: match drops_of_subject {
            true => "nats stream edit --discard=new --discard-per-subject",
            false => "nats stream edit --discard=new",
        },
    })
}

fn age(config: &Config, demands: &Demands) -> Option<Found> {
    let age = Span::Time(config.max_age);
    (!config.max_age.is_zero() && age < demands.window).then(|| Found {
        check: "nats.max-age",
        rank: Rank::Loss,
        what: format!(
            "It drops messages after {age}, read or not, while messages may come again for {}: what a group has not read \
             by then is gone.",
            demands.window
        ),
        mend: "nats stream edit --max-age=<longer>",
    })
}

fn retention(config: &Config) -> Option<Found> {
    (config.retention != RetentionPolicy::Limits).then(|| Found {
        check: "nats.retention",
        rank: Rank::Loss,
        what: "It drops a message as soon as the groups that are there have read it (or there are none): a group that \
               comes later does not get it."
            .into(),
        mend: "make it anew with --retention=limits: nats stream add",
    })
}

fn duplicate_window(config: &Config, timeout: Duration) -> Option<Found> {
    let needed = timeout * TIMEOUTS_TO_A_RETRY;
    (config.duplicate_window < needed).then(|| Found {
        check: "nats.duplicate-window",
        rank: Rank::Duplicates,
        what: format!(
            "It remembers ids for {}, and a relay that got no answer may send again after {}: the copy is stored, and \
             only the inbox turns it away.",
            Span::Time(config.duplicate_window),
            Span::Time(needed)
        ),
        mend: "nats stream edit --dupe-window=2m",
    })
}

fn acknowledgements(config: &Config) -> Option<Found> {
    config.no_ack.then(|| Found {
        check: "nats.no-ack",
        rank: Rank::Loss,
        what: "It acknowledges nothing: no sender ever knows whether a message was stored.".into(),
        mend: "nats stream edit --ack",
    })
}

fn batches(config: &Config, takes_batches: bool) -> Option<Found> {
    (takes_batches && !config.allow_atomic_publish).then(|| Found {
        check: "nats.atomic-batches",
        rank: Rank::Latency,
        what: "It takes no atomic batches, though the server could: publishers that use them are refused.".into(),
        mend: "nats stream edit --allow-batch",
    })
}
