//! What one topic's copies and settings allow to happen, one small function per check.

use std::time::Duration;

use landfall_core::{Demands, Finding, Limits, Rank, Span};
use rdkafka::admin::ConfigResource;

use super::{Partitions, value};

/// What Landfall's largest message takes with all its headers.
const LARGEST_HEADERS_BYTES: usize = 64 * 1024;

fn finding(topic: &Partitions, check: &'static str, rank: Rank, what: String, mend: impl Into<String>) -> Finding {
    Finding { check, rank, about: format!("topic {}", topic.name), what, mend: mend.into() }
}

impl Partitions {
    /// The copies of the partition that has the fewest.
    fn copies(&self) -> usize {
        self.each.iter().map(|partition| partition.copies).min().unwrap_or_default()
    }
}

pub(super) fn copies(topic: &Partitions) -> Vec<Finding> {
    [replication(topic), under_replicated(topic), offline(topic)].into_iter().flatten().collect()
}

pub(super) fn settings(topic: &Partitions, settings: &ConfigResource, demands: &Demands) -> Vec<Finding> {
    let checks = [
        min_insync_replicas(topic, settings),
        no_copy_may_be_missing(topic, settings),
        unclean_election(topic, settings),
        compaction(topic, settings),
        retention(topic, settings, demands),
        retention_bytes(topic, settings),
        message_bytes(topic, settings),
    ];
    checks.into_iter().flatten().collect()
}

fn replication(topic: &Partitions) -> Option<Finding> {
    let what = "there is one copy, and it is lost with its disk".to_owned();
    let mend = "a replication factor of 3, with kafka-reassign-partitions";
    (topic.copies() < 2).then(|| finding(topic, "kafka.replication", Rank::Loss, what, mend))
}

fn under_replicated(topic: &Partitions) -> Option<Finding> {
    let behind = topic.each.iter().filter(|partition| partition.in_step < partition.copies).count();
    (behind > 0).then(|| {
        let what = format!("{behind} of {} partitions have a copy that is not in step", topic.each.len());
        finding(topic, "kafka.under-replicated", Rank::Loss, what, "bring the missing nodes back")
    })
}

fn offline(topic: &Partitions) -> Option<Finding> {
    let without = topic.each.iter().filter(|partition| partition.leader < 0).count();
    (without > 0).then(|| {
        let what = format!("{without} of {} partitions have no leader; their keys wait", topic.each.len());
        finding(topic, "kafka.offline", Rank::Latency, what, "bring the nodes with their copies back")
    })
}

fn min_insync_replicas(topic: &Partitions, settings: &ConfigResource) -> Option<Finding> {
    let least: usize = value(settings, "min.insync.replicas")?;
    // With one copy there is worse to say.
    (least < 2 && topic.copies() >= 2).then(|| {
        let what = format!("min.insync.replicas={least}: a message counts as accepted when one copy has it");
        finding(topic, "kafka.min-insync-replicas", Rank::Loss, what, "min.insync.replicas=2")
    })
}

fn no_copy_may_be_missing(topic: &Partitions, settings: &ConfigResource) -> Option<Finding> {
    let least: usize = value(settings, "min.insync.replicas")?;
    (least > 1 && least >= topic.copies()).then(|| {
        let what =
            format!("min.insync.replicas={least} of {} copies: nothing is accepted while one is away", topic.copies());
        let mend = format!("min.insync.replicas={}, or one copy more", topic.copies().saturating_sub(1).max(1));
        finding(topic, "kafka.no-spare-copy", Rank::Latency, what, mend)
    })
}

fn unclean_election(topic: &Partitions, settings: &ConfigResource) -> Option<Finding> {
    (value(settings, "unclean.leader.election.enable") == Some(true)).then(|| {
        let what = "a copy that is behind may become the leader, and what it lacks is gone".to_owned();
        finding(topic, "kafka.unclean-election", Rank::Loss, what, "unclean.leader.election.enable=false")
    })
}

fn compaction(topic: &Partitions, settings: &ConfigResource) -> Option<Finding> {
    let policy: String = value(settings, "cleanup.policy")?;
    policy.split(',').any(|policy| policy.trim() == "compact").then(|| {
        let what = format!("cleanup.policy={policy}: of a key's messages only the last is kept, read or not");
        finding(topic, "kafka.compaction", Rank::Loss, what, "cleanup.policy=delete")
    })
}

fn retention(topic: &Partitions, settings: &ConfigResource, demands: &Demands) -> Option<Finding> {
    let millis: i64 = value(settings, "retention.ms")?;
    let kept = u64::try_from(millis).map_or(Span::Forever, |millis| Span::Time(Duration::from_millis(millis)));
    kept.short_of(demands.window).map(|_| {
        let window = demands.window;
        let what = format!("messages are removed after {kept}, read or not, and may be needed for {window}");
        let mend = window.time().map_or("retention.ms=-1".into(), |time| format!("retention.ms={}", time.as_millis()));
        finding(topic, "kafka.retention", Rank::Loss, what, mend)
    })
}

fn retention_bytes(topic: &Partitions, settings: &ConfigResource) -> Option<Finding> {
    let bytes: i64 = value(settings, "retention.bytes")?;
    (bytes >= 0).then(|| {
        let what = format!("messages beyond {bytes} bytes of a partition are removed, however young, read or not");
        finding(topic, "kafka.retention-bytes", Rank::Loss, what, "retention.bytes=-1")
    })
}

fn message_bytes(topic: &Partitions, settings: &ConfigResource) -> Option<Finding> {
    let bytes: usize = value(settings, "max.message.bytes")?;
    let largest = Limits::default().payload_bytes + LARGEST_HEADERS_BYTES;
    (bytes < largest).then(|| {
        let what = format!("max.message.bytes={bytes}: Landfall's largest messages are refused here, and parked");
        finding(
            topic,
            "kafka.message-bytes",
            Rank::Latency,
            what,
            format!("max.message.bytes={}", 2 * Limits::default().payload_bytes),
        )
    })
}

pub(super) fn clock(topic: &Partitions) -> Finding {
    let what =
        "a record is stamped with a time that has not come yet: a sender's clock is wrong, or this machine's, and \
                reading by time and removal by age go by it"
            .to_owned();
    finding(topic, "kafka.clock", Rank::Latency, what, "set the clocks, and message.timestamp.type=LogAppendTime")
}
