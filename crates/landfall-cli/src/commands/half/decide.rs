//! `landfall half commit`, `rollback` and `acknowledge`.

use clap::Args;
use landfall::half::{HalfCoordinator, StoredCoordinator};
use landfall::{Decided, HalfMessages, HalfVerdict};
use serde_json::json;

use super::{HalfId, Store};
use crate::actor::actor;
use crate::error::{Error, Result};
use crate::output::Output;

#[derive(Debug, Args)]
pub(super) struct Decide {
    id: HalfId,
    /// Name for the audit table [default: $USER]
    #[arg(long)]
    actor: Option<String>,
    /// Print one JSON object: id, state.
    #[arg(long)]
    json: bool,
}

impl Decide {
    /// Decides about an existing half message. Over HTTP a decision may also come first; a person has seen the message.
    pub(super) async fn run(self, store: Store, verdict: HalfVerdict) -> Result<()> {
        let id = self.id.0;
        super::find(&*store, id).await?;
        let coordinator = StoredCoordinator::new(store).with_actor(actor(self.actor));
        if let Decided::Contradiction(first) = coordinator.decide(id, verdict).await? {
            let text =
                format!("half message {id} is {} already, and the first verdict is final", first.state().as_str());
            return Err(Error::failed(format!("{text}; the contradiction is recorded")));
        }
        let state = verdict.state().as_str();
        let mut output = Output::new();
        if self.json {
            output.json(&json!({ "id": id, "state": state }))?;
        } else {
            output.line(&format!("{id} {state}"))?;
        }
        output.flush()
    }
}

#[derive(Debug, Args)]
pub(super) struct Acknowledge {
    id: HalfId,
    /// Name for the audit table [default: $USER]
    #[arg(long)]
    actor: Option<String>,
}

impl Acknowledge {
    pub(super) async fn run(self, store: &dyn HalfMessages) -> Result<()> {
        let id = self.id.0;
        if !store.acknowledge_contradiction(id, &actor(self.actor)).await? {
            return Err(Error::failed(format!("half message {id} has no contradiction that waits for a person")));
        }
        let mut output = Output::new();
        output.line(&format!("{id} acknowledged"))?;
        output.flush()
    }
}
