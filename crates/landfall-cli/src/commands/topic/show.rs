//! `landfall topic show`.

use clap::Args;
use landfall::TopicName;

use super::settings::shown_retention;
use crate::config::Config;
use crate::error::Result;
use crate::output::{Output, or_dash};
use crate::stores::broker;
use crate::topics::TopicDetails;
use crate::units::format_bytes;

/// Show the settings, partitions and consumer groups of a topic; works beside a running daemon.
///
/// A skew of 1 means that all partitions hold the same number of messages. With 4 partitions, a skew of 4 means that
/// one partition holds all of them, so that one consumer does all the work.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall topic show orders
  landfall topic show orders --json | jq '.partitions[] | {partition, share}'")]
pub(super) struct Show {
    topic: TopicName,
    /// Print one JSON object: topic, settings, messages, bytes, skew; partitions with partition, start, end, messages,
    /// bytes, segments, share; groups with group, members (null if another process has the log open), partitions, lag.
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(super) async fn run(self, config: &Config) -> Result<()> {
        let topic = broker::describe(config, &self.topic).await?;
        let mut output = Output::new();
        if self.json {
            output.json(&topic)?;
            return output.flush();
        }
        for (name, value) in facts(&topic) {
            output.line(&format!("{name:12} {value}"))?;
        }
        output.line("")?;
        let columns = ["partition", "start", "end", "messages", "share", "bytes", "segments"];
        output.list(false, &topic.partitions, columns, |partition| {
            [
                partition.partition.to_string(),
                partition.start.to_string(),
                partition.end.to_string(),
                partition.messages.to_string(),
                format!("{:.1} %", partition.share * 100.0),
                format_bytes(partition.bytes),
                partition.segments.to_string(),
            ]
        })?;
        if topic.groups.is_empty() {
            return Ok(());
        }
        output.line("")?;
        output.list(false, &topic.groups, ["group", "members", "lag"], |group| {
            [group.group.to_string(), or_dash(group.members), group.lag.to_string()]
        })
    }
}

fn facts(topic: &TopicDetails) -> [(&'static str, String); 7] {
    let settings = &topic.settings;
    let unread = if settings.may_drop_unread { "may be removed" } else { "kept until every group has finished it" };
    let older = if settings.compact { "may be removed once a key has a newer message" } else { "kept" };
    let again = if settings.deduplicate { "stored once" } else { "stored again" };
    [
        ("topic", topic.topic.to_string()),
        ("messages", format!("{} ({})", topic.messages, format_bytes(topic.bytes))),
        ("skew", format!("{:.2}", topic.skew)),
        ("retention", shown_retention(settings)),
        ("unread", unread.to_owned()),
        ("older", older.to_owned()),
        ("same id", again.to_owned()),
    ]
}
