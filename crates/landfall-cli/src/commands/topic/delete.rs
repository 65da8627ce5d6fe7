//! `landfall topic delete`.

use clap::Args;
use landfall::TopicName;
use serde::Serialize;

use super::audit::Actor;
use super::confirm::confirm;
use crate::config::Config;
use crate::error::Result;
use crate::output::Output;
use crate::stores::broker::{self, Administration};

/// Delete a topic with all its messages and the progress of its consumer groups.
///
/// A topic that does not exist is no error. The next message sent to it creates a new topic that starts at offset 0.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall topic delete orders
  landfall topic delete orders --yes --json")]
pub(super) struct Delete {
    topic: TopicName,
    /// Delete without confirmation.
    #[arg(long)]
    yes: bool,
    /// Print one JSON object: topic, deleted.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    actor: Actor,
}

#[derive(Serialize)]
struct DeleteReport<'a> {
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
                    &format!("topic {topic} has {} messages, which cannot be recovered", found.messages),
                )?;
                let audit = self.actor.open_audit(config).await?;
                let detail = format!("topic {topic} with {} messages", found.messages);
                let delete = async |topics: &dyn Administration| {
                    audit.record("topic-delete", &detail, async || topics.delete_topic(topic).await).await
                };
                broker::administer(config, delete).await?
            }
        };
        let mut output = Output::new();
        if self.json {
            output.json(&DeleteReport { topic, deleted })?;
        } else {
            output.line(&if deleted {
                format!("topic {topic} is deleted")
            } else {
                format!("there is no topic {topic}")
            })?;
        }
        output.flush()
    }
}
