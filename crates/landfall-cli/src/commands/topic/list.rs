//! `landfall topic list`.

use clap::Args;
use landfall::TopicName;
use landfall::log::{TopicDescription, TopicSettings};
use serde::Serialize;

use super::settings::kept;
use crate::config::Config;
use crate::error::Result;
use crate::output::Output;
use crate::stores::broker;

/// List the topics; works beside a running daemon.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall topic list
  landfall topic list --broker-url log:/var/lib/landfall/log --json")]
pub(super) struct List {
    /// One JSON object a line: topic, partitions, messages, bytes, skew, settings.
    #[arg(long)]
    json: bool,
}

/// A topic as `--json` shows it: part of the command's contract.
#[derive(Serialize)]
struct Line {
    topic: TopicName,
    partitions: usize,
    messages: u64,
    bytes: u64,
    skew: f64,
    settings: TopicSettings,
}

impl From<TopicDescription> for Line {
    fn from(TopicDescription { topic, settings, messages, bytes, skew, partitions, .. }: TopicDescription) -> Self {
        Self { topic, partitions: partitions.len(), messages, bytes, skew, settings }
    }
}

impl List {
    pub(super) async fn run(self, config: &Config) -> Result<()> {
        let topics = broker::open_to_read(config).await?.topics().await?;
        let topics: Vec<Line> = topics.into_iter().map(Line::from).collect();
        Output::new().list(
            self.json,
            &topics,
            ["topic", "partitions", "messages", "bytes", "skew", "retention"],
            |topic| {
                [
                    topic.topic.to_string(),
                    topic.partitions.to_string(),
                    topic.messages.to_string(),
                    topic.bytes.to_string(),
                    format!("{:.2}", topic.skew),
                    kept(&topic.settings),
                ]
            },
        )
    }
}
