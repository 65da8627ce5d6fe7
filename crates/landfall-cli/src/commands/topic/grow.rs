//! `landfall topic grow`.

use clap::Args;
use landfall::TopicName;

use super::audit::Actor;
use super::confirm::confirm;
use crate::config::Config;
use crate::error::Result;
use crate::output::Output;
use crate::stores::broker::{self, TopicManagement};
use crate::topics::Growth;

/// Add partitions to a topic; their number cannot be reduced.
///
/// The partition of a key depends on its hash and the number of partitions, so many keys move. Newer messages of a
/// key may then be consumed before older ones in the previous partition are finished. To preserve order, stop
/// publishing, let every group finish, grow, and resume.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall topic grow orders --partitions 24
  landfall topic grow orders --partitions 24 --yes --json")]
pub(super) struct Grow {
    topic: TopicName,
    /// New number of partitions.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    partitions: u32,
    /// Grow without confirmation.
    #[arg(long)]
    yes: bool,
    /// Print one JSON object: topic, before, after.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    actor: Actor,
}

impl Grow {
    pub(super) async fn run(self, config: &Config) -> Result<()> {
        let before = broker::describe(config, &self.topic).await?.partitions.len() as u32;
        let planned = Growth { topic: self.topic.clone(), before, after: self.partitions };
        // A request that is refused or changes nothing needs no confirmation.
        let mut audit = None;
        if self.partitions > before {
            confirm(self.yes, &planned.to_string())?;
            audit = Some(self.actor.open_audit(config).await?);
        }
        let detail = format!("topic {} from {before} to {} partitions", self.topic, self.partitions);
        let grow = async |topics: &dyn TopicManagement| {
            let change = async || topics.grow_topic(&self.topic, self.partitions).await;
            match &audit {
                Some(audit) => audit.record("topic-grow", &detail, change).await,
                None => change().await,
            }
        };
        let growth = broker::manage(config, "growing a topic", grow).await?;
        let mut output = Output::new();
        if self.json {
            output.json(&growth)?;
        } else {
            output.line(&growth.to_string())?;
        }
        output.flush()
    }
}
