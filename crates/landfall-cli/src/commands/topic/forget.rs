//! `landfall topic forget`.

use clap::Args;
use landfall::{GroupName, TopicName};
use serde::Serialize;

use super::audit::Actor;
use super::confirm::confirm;
use crate::config::Config;
use crate::error::Result;
use crate::output::Output;
use crate::stores::broker::{self, TopicManagement};
use crate::topics::{GroupProgress, TopicDetails};

/// Delete the progress of a consumer group that no longer runs.
///
/// An abandoned group keeps retention from removing the messages it has not finished. A forgotten group does not. If it
/// returns, it starts at the beginning of the topic and receives every message again. A group that does not exist is no
/// error.
///
/// Needs exclusive access to the embedded log: stop the daemon and the consumers first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall topic forget orders --group billing
  landfall topic forget orders --group billing --yes --json")]
pub(super) struct Forget {
    topic: TopicName,
    /// Consumer group to forget.
    #[arg(long)]
    group: GroupName,
    /// Forget without confirmation.
    #[arg(long)]
    yes: bool,
    /// Print one JSON object: topic, group, forgotten.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    actor: Actor,
}

#[derive(Serialize)]
struct ForgetReport<'a> {
    topic: &'a TopicName,
    group: &'a GroupName,
    forgotten: bool,
}

impl Forget {
    pub(super) async fn run(self, config: &Config) -> Result<()> {
        let (topic, group) = (&self.topic, &self.group);
        let description = broker::describe(config, topic).await?;
        let found = description.groups.iter().find(|found| found.group == *group);
        if let Some(found) = found {
            let again = finished(&description, found);
            let text = format!(
                "if group {group} returns, it starts at the beginning of topic {topic} and receives {again} finished \
                 messages again"
            );
            confirm(self.yes, &text)?;
            let audit = self.actor.open_audit(config).await?;
            let detail = format!("group {group} of topic {topic}");
            let forget = async |topics: &dyn TopicManagement| {
                audit.record("topic-forget", &detail, async || topics.forget_group(topic, group).await).await
            };
            broker::manage(config, "forgetting a group", forget).await?;
        }
        let (mut output, forgotten) = (Output::new(), found.is_some());
        if self.json {
            output.json(&ForgetReport { topic, group, forgotten })?;
        } else {
            output.line(&if forgotten {
                format!("group {group} of topic {topic} is forgotten")
            } else {
                format!("topic {topic} had no group {group}")
            })?;
        }
        output.flush()
    }
}

/// Returns the number of stored offsets that the group has finished.
fn finished(topic: &TopicDetails, group: &GroupProgress) -> u64 {
    let partitions = topic.partitions.iter().zip(&group.partitions);
    partitions.map(|(partition, progress)| progress.finished.saturating_sub(partition.start)).sum()
}
