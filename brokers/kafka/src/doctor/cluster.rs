//! What the URL asks for, and what holds for every topic.

use std::time::Duration;

use landfall_core::{Demands, Finding, Rank, Span};
use rdkafka::admin::ConfigResource;

use super::{Partitions, value};
use crate::config::{Acks, Options};

pub(super) fn options(options: &Options) -> Vec<Finding> {
    let mut found = Vec::new();
    if options.acks != Acks::All {
        let acks = options.acks.as_str();
        found.push(Finding {
            check: "kafka.acks",
            rank: Rank::Loss,
            about: "the broker URL".into(),
            what: format!("acks={acks}: what was accepted is lost with a leader that had not copied it yet"),
            mend: "acks=all".into(),
        });
        found.push(Finding {
            check: "kafka.idempotence",
            rank: Rank::Duplicates,
            about: "the broker URL".into(),
            what: format!("acks={acks}: the producer does not number what it sends, and what is sent again after a lost answer is stored twice"),
            mend: "acks=all".into(),
        });
    }
    if options.replication.is_some_and(|copies| copies < 2) {
        found.push(Finding {
            check: "kafka.replication-option",
            rank: Rank::Loss,
            about: "the broker URL".into(),
            what: "replication=1: topics made here are lost with one disk".into(),
            mend: "replication=3, or leave it out".into(),
        });
    }
    found
}

pub(super) fn node(node: i32, settings: &ConfigResource, demands: &Demands) -> Vec<Finding> {
    let auto_create = value(settings, "auto.create.topics.enable") == Some(true);
    let auto_create = auto_create.then(|| Finding {
        check: "kafka.auto-create",
        rank: Rank::Loss,
        about: format!("node {node}"),
        what: "whoever mistypes a topic's name makes a topic that nobody reads, with the cluster's defaults".into(),
        mend: "auto.create.topics.enable=false".into(),
    });
    let minutes: Option<u64> = value(settings, "offsets.retention.minutes");
    let kept = minutes.map(|minutes| Span::Time(Duration::from_secs(minutes.saturating_mul(60))));
    let short = kept.filter(|kept| kept.short_of(demands.window).is_some()).map(|kept| Finding {
        check: "kafka.offsets-retention",
        rank: Rank::Duplicates,
        about: format!("node {node}"),
        what: format!("the progress of a group that is away for {kept} is forgotten, and it gets everything again, {} being how long the inbox is sure to know it", demands.window),
        mend: match demands.window.time() {
            Some(window) => format!("offsets.retention.minutes={}", window.as_secs().div_ceil(60)),
            None => "offsets.retention.minutes=2147483647".into(),
        },
    });
    auto_create.into_iter().chain(short).collect()
}

/// Where the cluster keeps how far each group has come.
pub(super) fn progress_of_groups(topic: &Partitions) -> Option<Finding> {
    let single = topic.name == "__consumer_offsets" && topic.each.iter().any(|partition| partition.copies < 2);
    single.then(|| Finding {
        check: "kafka.offsets-replication",
        rank: Rank::Duplicates,
        about: format!("topic {}", topic.name),
        what: "how far each group has come has one copy; without it groups get everything again".into(),
        mend: "offsets.topic.replication.factor=3, and kafka-reassign-partitions for the topic that is there".into(),
    })
}
