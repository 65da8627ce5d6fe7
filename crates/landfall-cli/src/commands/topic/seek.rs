//! `landfall topic seek`.

use clap::Args;
use landfall::{GroupName, StartAt, TopicName};
use serde::Serialize;

use super::start::parse_start;
use crate::config::Config;
use crate::error::Result;
use crate::output::Output;
use crate::stores::broker::{self, TopicManagement};
use crate::topics::PartitionProgress;

/// Move a consumer group backward or forward in every partition of a topic.
///
/// Backward, the group receives finished messages again; those that are still in its inbox have no second effect.
/// Forward, the group skips the messages in between. The topic itself is unchanged, so another seek undoes this one.
/// A group that does not exist is created at that position.
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
    /// Print one JSON object: topic, group, lag, and partitions with partition, finished (every lower offset is
    /// finished), end, lag.
    #[arg(long)]
    json: bool,
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
        let Self { topic, group, to, json } = &self;
        // Opening the log for changes would create a missing one, so check first.
        broker::describe(config, topic).await?;
        let seek = async |topics: &dyn TopicManagement| topics.seek(topic, group, *to).await;
        let found = broker::manage(config, "moving a group", seek).await?;
        let mut output = Output::new();
        if *json {
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
