//! Checks of a topic's stream, one function per check.

use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, RetentionPolicy, StorageType};
use landfall_core::adapter::Demands;
use landfall_core::{Finding, Rank, Span};

use crate::topic::Topic;

/// Number of timeouts within which a relay has retried a message without an answer, including its backoff.
const RETRY_TIMEOUTS: u32 = 6;

pub(super) fn diagnose(
    topic: &Topic,
    info: &Info,
    demands: &Demands,
    timeout: Duration,
    supports_batches: bool,
) -> Vec<Finding> {
    let config = &info.config;
    let checks = [
        replicas(config),
        replicas_down(info),
        storage(config),
        discard(config),
        age(config, demands),
        retention(config),
        duplicate_window(config, timeout),
        acknowledgements(config),
        batches(config, supports_batches),
    ];
    let about = || format!("topic {}", topic.name);
    checks
        .into_iter()
        .flatten()
        .map(|StreamFinding { check, rank, what, mend }| Finding {
            check,
            rank,
            about: about(),
            what,
            mend: format!("{mend} {}", topic.stream),
        })
        .collect()
}

struct StreamFinding {
    check: &'static str,
    rank: Rank,
    what: String,
    /// The stream's name is appended.
    mend: &'static str,
}

fn replicas(config: &Config) -> Option<StreamFinding> {
    (config.num_replicas < 3).then(|| StreamFinding {
        check: "nats.replicas",
        rank: Rank::Loss,
        what: format!(
            "The stream has {} replica: accepted messages are lost with that server's disk.",
            config.num_replicas
        ),
        mend: "a cluster of three servers, and: nats stream edit --replicas=3",
    })
}

fn replicas_down(info: &Info) -> Option<StreamFinding> {
    let down = info.cluster.iter().flat_map(|cluster| &cluster.replicas).filter(|peer| peer.offline || !peer.current);
    let names: Vec<&str> = down.map(|peer| peer.name.as_str()).collect();
    (!names.is_empty()).then(|| StreamFinding {
        check: "nats.replica-away",
        rank: Rank::Loss,
        what: format!("{} of its replicas are offline or lagging ({}).", names.len(), names.join(", ")),
        mend: "restart the server, or find out why it lags: nats stream info",
    })
}

fn storage(config: &Config) -> Option<StreamFinding> {
    (config.storage == StorageType::Memory).then(|| StreamFinding {
        check: "nats.memory-storage",
        rank: Rank::Loss,
        what: "The stream is kept in memory only: accepted messages are lost when the server stops.".into(),
        mend: "create the stream again with --storage=file: nats stream add",
    })
}

fn discard(config: &Config) -> Option<StreamFinding> {
    let limits = [config.max_bytes, config.max_messages, config.max_messages_per_subject];
    let drops_any = limits.iter().any(|limit| *limit > 0) && config.discard == DiscardPolicy::Old;
    // A per-subject limit drops the oldest messages under `New` too, unless `discard_new_per_subject` is set.
    let drops_of_subject = config.max_messages_per_subject > 0 && !config.discard_new_per_subject;
    (drops_any || drops_of_subject).then(|| StreamFinding {
        check: "nats.discard-old",
        rank: Rank::Loss,
        what: "The stream has a limit. When it is reached, the oldest messages are dropped, read or not.".into(),
        mend: match drops_of_subject {
            true => "nats stream edit --discard=new --discard-per-subject",
            false => "nats stream edit --discard=new",
        },
    })
}

fn age(config: &Config, demands: &Demands) -> Option<StreamFinding> {
    let age = Span::Time(config.max_age);
    (!config.max_age.is_zero() && age < demands.window).then(|| StreamFinding {
        check: "nats.max-age",
        rank: Rank::Loss,
        what: format!(
            "The stream drops messages after {age}, read or not, but they may be needed for {}: messages that a group \
             has not read by then are lost.",
            demands.window
        ),
        mend: "nats stream edit --max-age=<longer>",
    })
}

fn retention(config: &Config) -> Option<StreamFinding> {
    (config.retention != RetentionPolicy::Limits).then(|| StreamFinding {
        check: "nats.retention",
        rank: Rank::Loss,
        what:
            "The stream drops a message once all existing groups have read it, or at once if there are none. A group \
               that joins later does not receive it."
                .into(),
        mend: "create the stream again with --retention=limits: nats stream add",
    })
}

fn duplicate_window(config: &Config, timeout: Duration) -> Option<StreamFinding> {
    let needed = timeout * RETRY_TIMEOUTS;
    (config.duplicate_window < needed).then(|| StreamFinding {
        check: "nats.duplicate-window",
        rank: Rank::Duplicates,
        what: format!(
            "The stream remembers ids for {}, but a relay without an answer may retry after {}: the duplicate is \
             stored, and only the inbox rejects it.",
            Span::Time(config.duplicate_window),
            Span::Time(needed)
        ),
        mend: "nats stream edit --dupe-window=2m",
    })
}

fn acknowledgements(config: &Config) -> Option<StreamFinding> {
    config.no_ack.then(|| StreamFinding {
        check: "nats.no-ack",
        rank: Rank::Loss,
        what: "The stream sends no acknowledgements: the outcome of every message is unknown.".into(),
        mend: "nats stream edit --ack",
    })
}

fn batches(config: &Config, supports_batches: bool) -> Option<StreamFinding> {
    (supports_batches && !config.allow_atomic_publish).then(|| StreamFinding {
        check: "nats.atomic-batches",
        rank: Rank::Latency,
        what:
            "The stream does not allow atomic batches, which the server supports: publishers that use them are refused."
                .into(),
        mend: "nats stream edit --allow-batch",
    })
}
