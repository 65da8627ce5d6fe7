//! `landfall topic grow`.

use clap::Args;
use landfall::TopicName;
use landfall::log::Growth;

use super::confirm::confirm;
use crate::config::Config;
use crate::error::Result;
use crate::output::Output;
use crate::stores::broker;

/// Give a topic more partitions; it can never have fewer.
///
/// A key's partition follows from its hash and the number of partitions, so that many keys go elsewhere from then on:
/// newer messages of a key may be consumed before older ones in the old partition are finished. Where that matters, stop
/// publishing, let every group finish, grow, and go on.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall topic grow orders --partitions 24
  landfall topic grow orders --partitions 24 --yes --json")]
pub(super) struct Grow {
    topic: TopicName,
    /// How many partitions it is to have.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    partitions: u32,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// One JSON object: topic, before, after.
    #[arg(long)]
    json: bool,
}

impl Grow {
    pub(super) async fn run(self, config: &Config) -> Result<()> {
        let before = broker::describe(config, &self.topic).await?.partitions.len() as u32;
        let planned = Growth { topic: self.topic.clone(), before, after: self.partitions };
        // What is refused or changes nothing needs nobody's consent.
        if self.partitions > before {
            confirm(self.yes, &planned.to_string())?;
        }
        let growth =
            broker::change(config, async |topics| topics.grow_topic(&self.topic, self.partitions).await).await?;
        let mut output = Output::new();
        if self.json {
            output.json(&growth)?;
        } else {
            output.line(&growth.to_string())?;
        }
        output.flush()
    }
}
