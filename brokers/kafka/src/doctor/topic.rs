//! Checks of one topic's replicas and settings, one function per check.

use std::time::Duration;

use landfall_core::adapter::Demands;
use landfall_core::{Finding, Limits, Rank, Span};
use rdkafka::admin::ConfigResource;

use super::{TopicMetadata, value};

/// Size limit of the headers of one message.
const LARGEST_HEADERS_BYTES: usize = 64 * 1024;

fn finding(topic: &TopicMetadata, check: &'static str, rank: Rank, what: String, mend: impl Into<String>) -> Finding {
    Finding { check, rank, about: format!("topic {}", topic.name), what, mend: mend.into() }
}

impl TopicMetadata {
    /// The replication factor of the partition with the fewest replicas.
    fn min_replicas(&self) -> usize {
        self.partitions.iter().map(|partition| partition.replicas).min().unwrap_or_default()
    }
}

pub(super) fn replicas(topic: &TopicMetadata) -> Vec<Finding> {
    [replication(topic), under_replicated(topic), offline(topic)].into_iter().flatten().collect()
}

pub(super) fn settings(topic: &TopicMetadata, settings: &ConfigResource, demands: &Demands) -> Vec<Finding> {
    let checks = [
        min_insync_replicas(topic, settings),
        no_spare_replica(topic, settings),
        unclean_election(topic, settings),
        compaction(topic, settings),
        retention(topic, settings, demands),
        retention_bytes(topic, settings),
        message_bytes(topic, settings),
    ];
    checks.into_iter().flatten().collect()
}

fn replication(topic: &TopicMetadata) -> Option<Finding> {
    let what = "the topic has one replica and is lost with its disk".to_owned();
    let mend = "set a replication factor of 3, with kafka-reassign-partitions";
    (topic.min_replicas() < 2).then(|| finding(topic, "kafka.replication", Rank::Loss, what, mend))
}

fn under_replicated(topic: &TopicMetadata) -> Option<Finding> {
    let behind = topic.partitions.iter().filter(|partition| partition.in_sync < partition.replicas).count();
    (behind > 0).then(|| {
        let what = format!("{behind} of {} partitions have a replica that is not in sync", topic.partitions.len());
        finding(topic, "kafka.under-replicated", Rank::Loss, what, "bring the missing nodes back")
    })
}

fn offline(topic: &TopicMetadata) -> Option<Finding> {
    let without = topic.partitions.iter().filter(|partition| partition.leader < 0).count();
    (without > 0).then(|| {
        let what =
            format!("{without} of {} partitions have no leader; messages with their keys wait", topic.partitions.len());
        finding(topic, "kafka.offline", Rank::Latency, what, "bring the nodes with their replicas back")
    })
}

fn min_insync_replicas(topic: &TopicMetadata, settings: &ConfigResource) -> Option<Finding> {
    let minimum: usize = value(settings, "min.insync.replicas")?;
    // A topic with one replica already has the worse finding `kafka.replication`.
    (minimum < 2 && topic.min_replicas() >= 2).then(|| {
        let what = format!("min.insync.replicas={minimum}: a message counts as accepted when one replica has it");
        finding(topic, "kafka.min-insync-replicas", Rank::Loss, what, "min.insync.replicas=2")
    })
}

fn no_spare_replica(topic: &TopicMetadata, settings: &ConfigResource) -> Option<Finding> {
    let minimum: usize = value(settings, "min.insync.replicas")?;
    (minimum > 1 && minimum >= topic.min_replicas()).then(|| {
        let replicas = topic.min_replicas();
        let what =
            format!("min.insync.replicas={minimum} of {replicas}: no message is accepted while a replica is down");
        let mend = format!("min.insync.replicas={}, or one more replica", replicas.saturating_sub(1).max(1));
        finding(topic, "kafka.no-spare-copy", Rank::Latency, what, mend)
    })
}

fn unclean_election(topic: &TopicMetadata, settings: &ConfigResource) -> Option<Finding> {
    (value(settings, "unclean.leader.election.enable") == Some(true)).then(|| {
        let what = "a replica that lags may become the leader, and the messages that it lacks are lost".to_owned();
        finding(topic, "kafka.unclean-election", Rank::Loss, what, "unclean.leader.election.enable=false")
    })
}

fn compaction(topic: &TopicMetadata, settings: &ConfigResource) -> Option<Finding> {
    let policy: String = value(settings, "cleanup.policy")?;
    policy.split(',').any(|policy| policy.trim() == "compact").then(|| {
        let what = format!(
            "cleanup.policy={policy}: only the last message of each key is kept, even if the others are unread"
        );
        finding(topic, "kafka.compaction", Rank::Loss, what, "cleanup.policy=delete")
    })
}

fn retention(topic: &TopicMetadata, settings: &ConfigResource, demands: &Demands) -> Option<Finding> {
    let millis: i64 = value(settings, "retention.ms")?;
    let retention = u64::try_from(millis).map_or(Span::Forever, |millis| Span::Time(Duration::from_millis(millis)));
    retention.short_of(demands.window).map(|_| {
        let window = demands.window;
        let what = format!("messages are removed after {retention}, read or not, and may be needed for {window}");
        let mend = window.time().map_or("retention.ms=-1".into(), |time| format!("retention.ms={}", time.as_millis()));
        finding(topic, "kafka.retention", Rank::Loss, what, mend)
    })
}

fn retention_bytes(topic: &TopicMetadata, settings: &ConfigResource) -> Option<Finding> {
    let bytes: i64 = value(settings, "retention.bytes")?;
    (bytes >= 0).then(|| {
        let what = format!("a partition keeps {bytes} bytes; older messages are removed even if they are unread");
        finding(topic, "kafka.retention-bytes", Rank::Loss, what, "retention.bytes=-1")
    })
}

fn message_bytes(topic: &TopicMetadata, settings: &ConfigResource) -> Option<Finding> {
    let bytes: usize = value(settings, "max.message.bytes")?;
    let largest = Limits::default().payload_bytes + LARGEST_HEADERS_BYTES;
    (bytes < largest).then(|| {
        let what =
            format!("max.message.bytes={bytes}: the cluster refuses Landfall's largest messages, and they are parked");
        finding(
            topic,
            "kafka.message-bytes",
            Rank::Latency,
            what,
            format!("max.message.bytes={}", 2 * Limits::default().payload_bytes),
        )
    })
}

pub(super) fn clock(topic: &TopicMetadata) -> Finding {
    let what = "a record has a timestamp in the future: a sender's clock or this machine's is wrong, \
                and seeking by time and retention depend on it"
        .to_owned();
    finding(
        topic,
        "kafka.clock",
        Rank::Latency,
        what,
        "correct the clocks, and set message.timestamp.type=LogAppendTime",
    )
}
