//! `landfall topic list`.

use clap::Args;

use super::settings::shown_retention;
use crate::config::Config;
use crate::error::Result;
use crate::output::{Output, or_dash};
use crate::stores::broker;

/// List the topics with their size and retention; works beside a running daemon.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall topic list
  landfall topic list --broker-url log:/var/lib/landfall/log --json")]
pub(super) struct List {
    /// Print one JSON object per line: topic, partitions, messages, bytes if the broker reports it; with the embedded
    /// log also skew and settings.
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) async fn run(self, config: &Config) -> Result<()> {
        let topics = broker::open_to_read(config).await?.topics().await?;
        Output::new().list(
            self.json,
            &topics,
            ["topic", "partitions", "messages", "bytes", "skew", "retention"],
            |topic| {
                [
                    topic.topic.to_string(),
                    topic.partitions.to_string(),
                    topic.messages.to_string(),
                    or_dash(topic.bytes),
                    or_dash(topic.skew.map(|skew| format!("{skew:.2}"))),
                    or_dash(topic.settings.as_ref().map(shown_retention)),
                ]
            },
        )
    }
}
