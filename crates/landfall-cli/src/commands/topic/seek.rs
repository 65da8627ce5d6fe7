//! `landfall topic seek`.

use clap::Args;
use landfall::log::PartitionLag;
use landfall::{GroupName, StartAt, TopicName};
use serde::Serialize;

use super::place::place;
use crate::config::Config;
use crate::error::Result;
use crate::output::Output;
use crate::stores::broker;

/// Let a group go on from another place in every partition of a topic, back or ahead.
///
/// Back: the group gets messages again that it has finished. Where its consumers have an inbox, those that are still in
/// it have no second effect. Ahead: the messages between count as finished, and the group never sees them. Nothing is
/// removed from the topic, so that it can be taken back with another seek. A group that was never there begins at that place.
///
/// Needs the embedded log for itself: stop the daemon and the consumers first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall topic seek orders --group billing --to beginning
  landfall topic seek orders --group billing --to 2026-11-15T08:00:00Z
  landfall topic seek orders --group billing --to end --json | jq .lag")]
pub(super) struct Seek {
    topic: TopicName,
    /// The group that is to go on from there.
    #[arg(long)]
    group: GroupName,
    /// Where to: beginning, end, an offset in every partition, or a time (RFC 3339, UTC): then the first message that
    /// the broker took at that time or later. An offset that a partition does not have means its beginning or its end.
    #[arg(long, value_parser = place)]
    to: StartAt,
    /// One JSON object: topic, group, lag, and for each partition: partition, finished (everything below it counts as
    /// finished), end, lag.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Answer<'a> {
    topic: &'a TopicName,
    group: &'a GroupName,
    partitions: &'a [PartitionLag],
    lag: u64,
}

impl Seek {
    pub(super) async fn run(self, config: &Config) -> Result<()> {
        let Self { topic, group, to, json } = &self;
        // Opening a log to change it would create one that is not there.
        broker::describe(config, topic).await?;
        let found = broker::change(config, async |topics| topics.seek(topic, group, *to).await).await?;
        let mut output = Output::new();
        if *json {
            output.json(&Answer { topic, group, partitions: &found.partitions, lag: found.lag })?;
            return output.flush();
        }
        output.line(&format!(
            "group {group} of topic {topic} goes on from here; {} messages are ahead of it",
            found.lag
        ))?;
        output.list(false, &found.partitions, ["partition", "next", "end", "lag"], |partition| {
            let PartitionLag { partition, finished, end, lag } = *partition;
            [partition.to_string(), finished.to_string(), end.to_string(), lag.to_string()]
        })
    }
}
