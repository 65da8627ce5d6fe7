//! `landfall half check`.

use clap::Args;
use landfall::Decided;
use landfall::check_back::Answer;
use serde_json::json;

use super::{HalfId, Store};
use crate::check_back;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::output::{Output, escaped};

/// Ask for the verdict on an undecided half message now, and decide if the answer is known.
///
/// Uses [check_back] of the configuration. An unknown answer changes nothing. Exits with 1 unless the answer is known.
#[derive(Debug, Args)]
pub(super) struct Check {
    id: HalfId,
    /// Print one JSON object: id, answer, reason, state.
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(super) async fn run(self, config: &Config, store: Store) -> Result<()> {
        let row = super::find(&*store, self.id.0).await?;
        if row.state.verdict().is_some() {
            return Err(Error::failed(format!("half message {} is {} already", row.id, row.state.as_str())));
        }
        let (answer, decided) = check_back::coordinator(config, store)?.check_now(&row).await?;
        let reason = match &answer {
            Answer::Unknown(reason) => Some(reason.as_str()),
            _ => None,
        };
        let state = match (decided, answer.verdict()) {
            (Some(Decided::Contradiction(first)), _) => first.state(),
            (_, Some(verdict)) => verdict.state(),
            (_, None) => row.state,
        };
        let mut output = Output::new();
        if self.json {
            let answer = answer.as_str();
            output.json(&json!({ "id": row.id, "answer": answer, "reason": reason, "state": state.as_str() }))?;
        } else {
            let reason = reason.map_or_else(String::new, |reason| format!(" ({})", escaped(reason)));
            output.line(&format!("{} answer {}{reason}, state {}", row.id, answer.as_str(), state.as_str()))?;
        }
        output.flush()?;
        if answer.verdict().is_none() {
            return Err(Error::failed(format!("the verdict on half message {} is unknown; nothing changed", row.id)));
        }
        Ok(())
    }
}
