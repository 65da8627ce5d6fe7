//! `landfall topic create`.

use clap::Args;
use landfall::TopicName;
use landfall::log::TopicSettings;
use serde::Serialize;

use super::settings::SettingsFlags;
use crate::config::Config;
use crate::error::Result;
use crate::output::Output;
use crate::stores::broker::{self, Made};

/// Create a topic, before its first message does.
///
/// What is not given is as [broker] in the configuration says. Run it as often as you like: a topic that is there with
/// the same partitions and settings is left as it is; with others it is an error that says what differs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall topic create orders --partitions 12
  landfall topic create clicks --retention 7d --retention-bytes 10GiB --may-drop-unread
  landfall topic create prices --compact --json")]
pub(super) struct Create {
    topic: TopicName,
    /// How many partitions: the most consumers of a group that can work side by side.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    partitions: Option<u32>,
    /// One JSON object: topic, created, partitions, settings.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: SettingsFlags,
}

#[derive(Serialize)]
struct Answer<'a> {
    topic: &'a TopicName,
    created: bool,
    partitions: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<TopicSettings>,
}

impl Create {
    pub(super) async fn run(self, config: &Config) -> Result<()> {
        let settings = (!self.settings.is_empty()).then(|| self.settings.over(config.broker.topic));
        let topic = &self.topic;
        let made = broker::change(config, async |topics| topics.create_topic(topic, self.partitions, settings).await);
        let Made { created, partitions, settings } = made.await?;
        let mut output = Output::new();
        if self.json {
            output.json(&Answer { topic, created, partitions, settings })?;
        } else {
            let how = if created { "is created" } else { "was there already" };
            output.line(&format!("topic {topic} {how}, with {partitions} partitions"))?;
        }
        output.flush()
    }
}
