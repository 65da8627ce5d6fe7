//! `landfall topic forget`.

use clap::Args;
use landfall::log::{GroupDescription, TopicDescription};
use landfall::{GroupName, TopicName};
use serde::Serialize;

use super::confirm::confirm;
use crate::config::Config;
use crate::error::Result;
use crate::output::Output;
use crate::stores::broker;

/// Forget how far a group has come in a topic, because it is gone for good.
///
/// A group that nobody runs any more keeps its messages from being removed by retention. Once it is forgotten it holds back
/// nothing. If it comes again after all, it begins at the beginning of the topic and gets everything once more.
/// Forgetting one that is not there is no error.
///
/// Needs the embedded log for itself: stop the daemon and the consumers first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall topic forget orders --group billing
  landfall topic forget orders --group billing --yes --json")]
pub(super) struct Forget {
    topic: TopicName,
    /// The group that is forgotten.
    #[arg(long)]
    group: GroupName,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// One JSON object: topic, group, forgotten.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Answer<'a> {
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
            let sentence = format!(
                "if group {group} comes again it begins at the beginning of topic {topic}, with {again} messages that it \
                 has finished"
            );
            confirm(self.yes, &sentence)?;
            broker::change(config, async |topics| topics.forget_group(topic, group).await).await?;
        }
        let (mut output, forgotten) = (Output::new(), found.is_some());
        if self.json {
            output.json(&Answer { topic, group, forgotten })?;
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

/// How many offsets that are still there the group has finished.
fn finished(topic: &TopicDescription, group: &GroupDescription) -> u64 {
    let partitions = topic.partitions.iter().zip(&group.partitions);
    partitions.map(|(partition, progress)| progress.finished.saturating_sub(partition.start)).sum()
}
