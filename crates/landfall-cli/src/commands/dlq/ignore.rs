//! `landfall dlq ignore` and `landfall dlq release`.

use clap::Args;
use landfall::{DeadLetterId, DeadLetters};
use serde_json::json;

use crate::actor::actor;
use crate::error::Result;
use crate::output::Output;

/// Ignore a parked message: no redrive touches it until it is released.
///
/// Later messages of its key keep waiting. Discard a message that can never succeed instead.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  landfall dlq ignore 17 --reason 'waits for the bank, see INC-42'")]
pub(super) struct Ignore {
    #[command(flatten)]
    order: Order,
}

/// Release an ignored message, which is parked again.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  landfall dlq release 17 && landfall dlq redrive --id 17")]
pub(super) struct Release {
    #[command(flatten)]
    order: Order,
}

#[derive(Debug, Args)]
struct Order {
    /// Id of the dead letter.
    id: DeadLetterId,
    /// Why; recorded in the audit table.
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Name for the audit table [default: $USER]
    #[arg(long)]
    actor: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Ignore {
    pub(super) async fn run(self, dead_letters: &dyn DeadLetters) -> Result<()> {
        let Order { id, reason, actor: name, json } = self.order;
        dead_letters.ignore(id, &reason, &actor(name)).await?;
        report(json, id, "ignored")
    }
}

impl Release {
    pub(super) async fn run(self, dead_letters: &dyn DeadLetters) -> Result<()> {
        let Order { id, reason, actor: name, json } = self.order;
        dead_letters.release_ignored(id, &reason, &actor(name)).await?;
        report(json, id, "parked")
    }
}

fn report(json: bool, id: DeadLetterId, status: &str) -> Result<()> {
    let mut output = Output::new();
    if json {
        output.json(&json!({"id": id, "status": status}))?;
    } else {
        output.line(&format!("dead letter {id} is {status}"))?;
    }
    output.flush()
}
