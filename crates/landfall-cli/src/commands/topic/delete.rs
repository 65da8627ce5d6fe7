//! `landfall topic delete`.

use clap::Args;
use landfall::TopicName;
use serde::Serialize;

use super::confirm::confirm;
use crate::config::Config;
use crate::error::Result;
use crate::output::Output;
use crate::stores::broker;

/// Delete a topic with all its messages, and how far every group has come in it.
///
/// Deleting one that is not there is no error. The next message that is sent to it creates it anew, from offset 0.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall topic delete orders
  landfall topic delete orders --yes --json")]
pub(super) struct Delete {
    topic: TopicName,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// One JSON object: topic, deleted.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Answer<'a> {
    topic: &'a TopicName,
    deleted: bool,
}

impl Delete {
    pub(super) async fn run(self, config: &Config) -> Result<()> {
        let topic = &self.topic;
        let found = broker::open_to_read(config).await?.topics().await?;
        let deleted = match found.iter().find(|found| found.topic == *topic) {
            None => false,
            Some(found) => {
                confirm(
                    self.yes,
                    &format!("topic {topic} has {} messages, which cannot be brought back", found.messages),
                )?;
                broker::change(config, async |topics| topics.delete_topic(topic).await).await?
            }
        };
        let mut output = Output::new();
        if self.json {
            output.json(&Answer { topic, deleted })?;
        } else {
            output.line(&if deleted {
                format!("topic {topic} is deleted")
            } else {
                format!("there was no topic {topic}")
            })?;
        }
        output.flush()
    }
}
