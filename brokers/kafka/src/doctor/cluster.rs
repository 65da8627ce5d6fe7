//! Checks of the URL's options, of each node's settings, and of the topic that stores group offsets.

use std::time::Duration;

use landfall_core::adapter::Demands;
use landfall_core::{Finding, Rank, Span};
use rdkafka::admin::ConfigResource;

use super::{TopicMetadata, value};
use crate::config::{Acks, Options};

pub(super) fn options(options: &Options) -> Vec<Finding> {
    let mut findings = Vec::new();
    if options.acks != Acks::All {
        let acks = options.acks.as_str();
        findings.push(Finding {
            check: "kafka.acks",
            rank: Rank::Loss,
            about: "the broker URL".into(),
            what: format!("acks={acks}: accepted messages are lost if the leader fails before it replicates them"),
            mend: "acks=all".into(),
        });
        findings.push(Finding {
            check: "kafka.idempotence",
            rank: Rank::Duplicates,
            about: "the broker URL".into(),
            what: format!(
                "acks={acks}: the producer is not idempotent, so a retry after a lost answer stores a duplicate"
            ),
            mend: "acks=all".into(),
        });
    }
    if options.acks == Acks::All && !options.fencing {
        findings.push(Finding {
            check: "kafka.fencing",
            rank: Rank::Duplicates,
            about: "the broker URL".into(),
            what:
                "fencing is off: a relay that was paused past its lease can still publish copies; the inbox discards \
                   them, other consumers of the topic see them"
                    .into(),
            mend: "fencing=true, if consumers without an inbox read the topics".into(),
        });
    }
    if options.replication.is_some_and(|replicas| replicas < 2) {
        findings.push(Finding {
            check: "kafka.replication-option",
            rank: Rank::Loss,
            about: "the broker URL".into(),
            what: "replication=1: topics that Landfall creates are lost with one disk".into(),
            mend: "replication=3, or omit it".into(),
        });
    }
    findings
}

pub(super) fn node(node: i32, settings: &ConfigResource, demands: &Demands) -> Vec<Finding> {
    let auto_create = value(settings, "auto.create.topics.enable") == Some(true);
    let auto_create = auto_create.then(|| Finding {
        check: "kafka.auto-create",
        rank: Rank::Loss,
        about: format!("node {node}"),
        what: "a mistyped topic name creates a topic without readers, with the cluster's default settings".into(),
        mend: "auto.create.topics.enable=false".into(),
    });
    let minutes: Option<u64> = value(settings, "offsets.retention.minutes");
    let retention = minutes.map(|minutes| Span::Time(Duration::from_secs(minutes.saturating_mul(60))));
    let short = retention.filter(|retention| retention.short_of(demands.window).is_some()).map(|retention| Finding {
        check: "kafka.offsets-retention",
        rank: Rank::Duplicates,
        about: format!("node {node}"),
        what: format!(
            "the cluster drops the offsets of a group that is inactive for {retention}, and delivers everything again; \
             the inbox deduplicates for {} only",
            demands.window
        ),
        mend: match demands.window.time() {
            Some(window) => format!("offsets.retention.minutes={}", window.as_secs().div_ceil(60)),
            None => "offsets.retention.minutes=2147483647".into(),
        },
    });
    auto_create.into_iter().chain(short).collect()
}

/// Checks the replication of the topic in which the cluster stores group offsets.
pub(super) fn group_offsets(topic: &TopicMetadata) -> Option<Finding> {
    let single = topic.name == "__consumer_offsets" && topic.partitions.iter().any(|partition| partition.replicas < 2);
    single.then(|| Finding {
        check: "kafka.offsets-replication",
        rank: Rank::Duplicates,
        about: format!("topic {}", topic.name),
        what: "group offsets have one replica; if it is lost, groups receive everything again".into(),
        mend: "offsets.topic.replication.factor=3, and kafka-reassign-partitions for the existing topic".into(),
    })
}
