//! `landfall idempotency release` and `complete`.

use clap::Args;
use landfall::idempotency::{OneTimeTokens, RecordId, Resolution, Snapshot};
use serde_json::json;
use serde_json::value::RawValue;

use crate::actor::actor;
use crate::error::{Error, Result};
use crate::output::Output;

/// Release an uncertain record: its work was not done, and the next request runs it.
#[derive(Debug, Args)]
pub(super) struct Release {
    id: RecordId,
    /// Name for the audit table [default: $USER]
    #[arg(long)]
    actor: Option<String>,
    /// Print one JSON object: id, state.
    #[arg(long)]
    json: bool,
}

/// Complete an uncertain record: its work was done, and repeats get this response.
#[derive(Debug, Args)]
pub(super) struct Complete {
    id: RecordId,
    /// The response, as JSON.
    #[arg(long, default_value = "null")]
    response: String,
    /// The HTTP status of the response.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(200..=599))]
    status: u16,
    /// Name for the audit table [default: $USER]
    #[arg(long)]
    actor: Option<String>,
    /// Print one JSON object: id, state.
    #[arg(long)]
    json: bool,
}

impl Release {
    pub(super) async fn run(self, store: &dyn OneTimeTokens) -> Result<()> {
        resolve(store, self.id, Resolution::Rerun, actor(self.actor), self.json).await
    }
}

impl Complete {
    pub(super) async fn run(self, store: &dyn OneTimeTokens) -> Result<()> {
        let response = RawValue::from_string(self.response)
            .map_err(|error| Error::usage(format!("--response is not JSON: {error}")))?;
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let answer = Snapshot::new(self.status, headers, response.get().to_owned());
        resolve(store, self.id, Resolution::Done(answer), actor(self.actor), self.json).await
    }
}

async fn resolve(
    store: &dyn OneTimeTokens,
    id: RecordId,
    resolution: Resolution,
    actor: String,
    json: bool,
) -> Result<()> {
    if !store.resolve_record(id, &resolution, &actor).await? {
        let state = super::find(store, id).await?.state.as_str();
        return Err(Error::failed(format!("idempotency record {id} is {state}; only an uncertain one is resolved")));
    }
    let state = match resolution {
        Resolution::Done(_) => "completed",
        Resolution::Rerun => "released",
    };
    let mut output = Output::new();
    if json {
        output.json(&json!({ "id": id, "state": state }))?;
    } else {
        output.line(&format!("{id} {state}"))?;
    }
    output.flush()
}
