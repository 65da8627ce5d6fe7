//! `landfall topic configure`.

use clap::Args;
use landfall::TopicName;
use landfall::log::TopicSettings;
use serde::Serialize;

use super::settings::{SettingsFlags, kept};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::output::Output;
use crate::stores::broker;

/// Change what a topic keeps; only what is given changes.
///
/// Retention and compaction follow the new settings from then on: what they remove is gone.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall topic configure orders --retention 30d
  landfall topic configure orders --retention forever --may-drop-unread=false
  landfall topic configure prices --compact --json")]
pub(super) struct Configure {
    topic: TopicName,
    /// One JSON object: topic, changed, settings.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: SettingsFlags,
}

#[derive(Serialize)]
struct Answer<'a> {
    topic: &'a TopicName,
    changed: bool,
    settings: TopicSettings,
}

impl Configure {
    pub(super) async fn run(self, config: &Config) -> Result<()> {
        if self.settings.is_empty() {
            return Err(Error::wrong_use(
                "say what to change, such as --retention 30d; landfall topic show has the rest",
            ));
        }
        broker::describe(config, &self.topic).await?;
        let (changed, settings) = broker::change(config, async |topics| {
            let settings = self.settings.over(topics.describe(&self.topic)?.settings);
            Ok((topics.configure_topic(&self.topic, settings).await?, settings))
        })
        .await?;
        let topic = &self.topic;
        let mut output = Output::new();
        if self.json {
            output.json(&Answer { topic, changed, settings })?;
        } else {
            let how = if changed { "now keeps" } else { "was so already and keeps" };
            output.line(&format!("topic {topic} {how} {}", kept(&settings)))?;
        }
        output.flush()
    }
}
