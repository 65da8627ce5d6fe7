//! `landfall topic create`.

use clap::Args;
use landfall::TopicName;
use serde::Serialize;

use super::settings::SettingsFlags;
use crate::config::Config;
use crate::error::Result;
use crate::output::Output;
use crate::stores::broker::{self, TopicManagement};
use crate::topics::{CreatedTopic, TopicSettings};

/// Create a topic with its own partitions and settings, before the first message creates it.
///
/// Omitted values default to [broker] in the configuration. Idempotent: an existing topic with the same partitions and
/// settings is left unchanged; other values are an error that names the differences.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall topic create orders --partitions 12
  landfall topic create clicks --retention 7d --retention-bytes 10GiB --may-drop-unread
  landfall topic create prices --compact --json")]
pub(super) struct Create {
    topic: TopicName,
    /// Number of partitions: the maximum parallelism of a consumer group.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    partitions: Option<u32>,
    /// Print one JSON object: topic, created, partitions, settings.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: SettingsFlags,
}

#[derive(Serialize)]
struct CreateReport<'a> {
    topic: &'a TopicName,
    created: bool,
    partitions: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<TopicSettings>,
}

impl Create {
    pub(super) async fn run(self, config: &Config) -> Result<()> {
        let (topic, partitions) = (&self.topic, self.partitions);
        let created = if self.settings.is_empty() {
            broker::administer(config, async |topics| topics.create_topic(topic, partitions).await).await
        } else {
            let settings = self.settings.over(config.broker.topic);
            let create =
                async |topics: &dyn TopicManagement| topics.create_topic_with(topic, partitions, settings).await;
            broker::manage(config, "a topic with settings", create).await
        };
        let CreatedTopic { created, partitions, settings } = created?;
        let mut output = Output::new();
        if self.json {
            output.json(&CreateReport { topic, created, partitions, settings })?;
        } else {
            let how = if created { "is created" } else { "already exists" };
            output.line(&format!("topic {topic} {how}, with {partitions} partitions"))?;
        }
        output.flush()
    }
}
