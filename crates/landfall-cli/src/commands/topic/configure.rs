//! `landfall topic configure`.

use clap::Args;
use landfall::TopicName;
use serde::Serialize;

use super::audit::Actor;
use super::settings::{SettingsFlags, shown_retention};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::output::Output;
use crate::stores::broker::{self, TopicManagement};
use crate::topics::TopicSettings;

/// Change the retention, compaction and deduplication of a topic; omitted settings stay.
///
/// Retention and compaction apply the new settings from now on; what they remove cannot be recovered.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall topic configure orders --retention 30d
  landfall topic configure orders --retention forever --may-drop-unread=false
  landfall topic configure prices --compact --json")]
pub(super) struct Configure {
    topic: TopicName,
    /// Print one JSON object: topic, changed, settings.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: SettingsFlags,
    #[command(flatten)]
    actor: Actor,
}

#[derive(Serialize)]
struct ConfigureReport<'a> {
    topic: &'a TopicName,
    changed: bool,
    settings: TopicSettings,
}

impl Configure {
    pub(super) async fn run(self, config: &Config) -> Result<()> {
        if self.settings.is_empty() {
            return Err(Error::usage(
                "no setting given; add one such as --retention 30d (`landfall topic show` prints the current ones)",
            ));
        }
        broker::describe(config, &self.topic).await?;
        let audit = self.actor.open_audit(config).await?;
        let configure = async |topics: &dyn TopicManagement| {
            let before = topics.settings(&self.topic)?;
            let settings = self.settings.over(before);
            if settings == before {
                return Ok((false, settings));
            }
            let detail = format!("topic {}: {settings:?}, before {before:?}", self.topic);
            let change = async || topics.configure_topic(&self.topic, settings).await;
            Ok((audit.record("topic-configure", &detail, change).await?, settings))
        };
        let (changed, settings) = broker::manage(config, "changing the settings of a topic", configure).await?;
        let topic = &self.topic;
        let mut output = Output::new();
        if self.json {
            output.json(&ConfigureReport { topic, changed, settings })?;
        } else {
            let how = if changed { "is changed" } else { "is unchanged" };
            output.line(&format!("topic {topic} {how}; retention: {}", shown_retention(&settings)))?;
        }
        output.flush()
    }
}
