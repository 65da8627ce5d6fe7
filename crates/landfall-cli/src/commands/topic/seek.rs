//! `landfall topic seek`.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use landfall::{GroupName, StartAt, Timestamp, TopicName};
use serde::Serialize;

use super::audit::Actor;
use super::start::parse_start;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::output::Output;
use crate::stores::broker::{self, TopicManagement};
use crate::topics::{GroupProgress, PartitionProgress};

/// Move a consumer group backward or forward in every partition of a topic.
///
/// Backward, the group receives finished messages again; those that are still in its inbox have no second effect.
/// A seek to messages older than retention.inbox is refused without --repeat-effects, because the inbox has forgotten
/// them. Forward, the group skips the messages in between. The topic itself is unchanged, so another seek undoes this
/// one. A group that does not exist is created at that position.
///
/// Needs exclusive access to the embedded log: stop the daemon and the consumers first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall topic seek orders --group billing --to beginning
  landfall topic seek orders --group billing --to 2026-11-15T08:00:00Z
  landfall topic seek orders --group billing --to end --json | jq .lag")]
pub(super) struct Seek {
    topic: TopicName,
    /// Consumer group to move.
    #[arg(long)]
    group: GroupName,
    /// Position: beginning, end, an offset in every partition, or a time (RFC 3339, UTC), which is the first message
    /// appended at or after it. An offset out of range means the beginning or the end of the partition.
    #[arg(long, value_parser = parse_start)]
    to: StartAt,
    /// Move the group even if it receives messages again that its inbox has forgotten: the effect of each happens a
    /// second time, unless the handler itself discards duplicates.
    #[arg(long)]
    repeat_effects: bool,
    /// Print one JSON object: topic, group, lag, and partitions with partition, finished (every lower offset is
    /// finished), end, lag.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    actor: Actor,
}

#[derive(Serialize)]
struct SeekReport<'a> {
    topic: &'a TopicName,
    group: &'a GroupName,
    partitions: &'a [PartitionProgress],
    lag: u64,
}

impl Seek {
    pub(super) async fn run(self, config: &Config) -> Result<()> {
        let Self { topic, group, to, json, actor, repeat_effects } = self;
        let (topic, group) = (&topic, &group);
        // Opening the log for changes would create a missing one, so check first.
        let details = broker::describe(config, topic).await?;
        if let (Some(window), false) = (config.retention.inbox.time(), repeat_effects) {
            let handled = details.groups.iter().find(|progress| progress.group == *group);
            if handled.is_some_and(|progress| progress.partitions.iter().any(|partition| partition.finished > 0)) {
                let oldest = oldest_again(config, topic, handled, to, window).await?;
                oldest.map_or(Ok(()), |oldest| Err(forgotten(group, oldest, config)))?;
            }
        }
        let audit = actor.open_audit(config).await?;
        let again = if repeat_effects { ", with --repeat-effects" } else { "" };
        let detail = format!("group {group} of topic {topic} to {to:?}{again}");
        let seek = async |topics: &dyn TopicManagement| {
            audit.record("topic-seek", &detail, async || topics.seek(topic, group, to).await).await
        };
        let found = broker::manage(config, "moving a group", seek).await?;
        let mut output = Output::new();
        if json {
            output.json(&SeekReport { topic, group, partitions: &found.partitions, lag: found.lag })?;
            return output.flush();
        }
        output.line(&format!("group {group} of topic {topic} is moved and has a lag of {} messages", found.lag))?;
        output.list(false, &found.partitions, ["partition", "next", "end", "lag"], |partition| {
            let PartitionProgress { partition, finished, end, lag } = *partition;
            [partition.to_string(), finished.to_string(), end.to_string(), lag.to_string()]
        })
    }
}

/// Messages read at a time while looking for the oldest one.
const BATCH: usize = 256;

/// Returns the time of a finished message at or after `to` that is older than `window`, if the first one of a partition
/// is.
async fn oldest_again(
    config: &Config,
    topic: &TopicName,
    group: Option<&GroupProgress>,
    to: StartAt,
    window: Duration,
) -> Result<Option<Timestamp>> {
    let finished = group.map_or(&[][..], |group| &group.partitions[..]);
    let mut unseen: BTreeMap<u32, u64> =
        finished.iter().map(|progress| (progress.partition, progress.finished)).collect();
    let mut reader = broker::open_to_read(config).await?.read(topic, to).await?;
    while !unseen.is_empty() {
        let batch = reader.read(BATCH).await?;
        if batch.is_empty() {
            break;
        }
        for stored in batch {
            // An unreadable message says nothing about its age; the next one does.
            let Ok(message) = stored.message else { continue };
            let Some(finished) = unseen.remove(&stored.position.partition) else { continue };
            let is_handled = stored.position.offset < finished;
            if is_handled && message.time.elapsed_since(Timestamp::now()) > window {
                return Ok(Some(message.time));
            }
        }
    }
    Ok(None)
}

fn forgotten(group: &GroupName, oldest: Timestamp, config: &Config) -> Error {
    Error::usage(format!(
        "group {group} would receive messages from {oldest} on again, but its inbox remembers only retention.inbox = \
         {}: their effects would happen a second time; nothing was changed; seek to a later time, or add \
         --repeat-effects",
        config.retention.inbox
    ))
}
