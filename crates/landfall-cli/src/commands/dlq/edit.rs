//! `landfall dlq edit`.

use std::io::Read;
use std::path::PathBuf;

use clap::Args;
use landfall::{DeadLetterId, DeadLetters};
use serde_json::json;

use crate::actor::actor;
use crate::error::{Error, Result};
use crate::output::Output;

/// Replace the payload of a parked message; redrive it afterwards.
///
/// The message keeps its id, key and headers. `dlq show` prints the original payload too, and the audit table records
/// the change under --actor.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall dlq edit 17 --payload fixed.json && landfall dlq redrive --id 17
  landfall dlq show 17 --json | jq '.payload | .total = 10' | landfall dlq edit 17 --payload -")]
pub(super) struct Edit {
    /// Id of the dead letter.
    id: DeadLetterId,
    /// File with the new payload, byte for byte; - for standard input.
    #[arg(long, value_name = "FILE")]
    payload: PathBuf,
    /// Name for the audit table [default: $USER]
    #[arg(long)]
    actor: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Edit {
    pub(super) async fn run(self, dead_letters: &dyn DeadLetters) -> Result<()> {
        let payload = self.read()?;
        dead_letters.edit(self.id, &payload, &actor(self.actor)).await?;
        let mut output = Output::new();
        if self.json {
            output.json(&json!({"id": self.id, "payload_bytes": payload.len()}))?;
        } else {
            let id = self.id;
            output.line(&format!("edited; hand it back with `landfall dlq redrive --id {id}`"))?;
        }
        output.flush()
    }

    fn read(&self) -> Result<Vec<u8>> {
        if self.payload.as_os_str() == "-" {
            let mut payload = Vec::new();
            let read = std::io::stdin().lock().read_to_end(&mut payload);
            return read
                .map(|_| payload)
                .map_err(|error| Error::failed(format!("cannot read standard input: {error}")));
        }
        std::fs::read(&self.payload)
            .map_err(|error| Error::failed(format!("cannot read {}: {error}", self.payload.display())))
    }
}
