//! `landfall dlq rehearse`.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use landfall::{Predicted, Prediction, RedriveGuards, RedriveSelection};
use serde_json::json;

use super::filter::Filter;
use crate::actor::actor;
use crate::error::{Error, Result};
use crate::output::Output;
use crate::rehearsal::{self, Answer, MAX_LETTERS};
use crate::stores::Database;

/// Predict what a redrive would do with each message, and change nothing.
///
/// With --run, the consumers also run their handlers, in transactions that are rolled back. A consumer answers if it
/// was built with `rehearsals()`, and a subscription if it has a rehearse_url; the others are shown as unanswered.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  landfall dlq rehearse --topic orders
  landfall dlq rehearse --id 17 --run
  landfall dlq rehearse --group billing --run --limit 20 --wait 30")]
pub(super) struct Rehearse {
    /// Run the handlers.
    #[arg(long)]
    run: bool,
    /// How long to wait for the handlers, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=60))]
    wait: u64,
    /// Rehearse at most this many, oldest first; with --run at most 100.
    #[arg(long, default_value_t = MAX_LETTERS)]
    limit: usize,
    /// Name for the audit table [default: $USER]
    #[arg(long)]
    actor: Option<String>,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    filter: Filter,
}

impl Rehearse {
    /// Requires a filter, before any connection is made.
    pub(super) fn check(&self) -> Result<()> {
        if self.filter.is_empty() {
            return Err(Error::usage("select the dead letters to rehearse with a filter such as --id or --topic"));
        }
        if self.limit == 0 || (self.run && self.limit > MAX_LETTERS) {
            return Err(Error::usage(format!("--limit must be at least 1, and with --run at most {MAX_LETTERS}")));
        }
        Ok(())
    }

    pub(super) async fn run(self, database: &Database, guards: RedriveGuards) -> Result<()> {
        let selection = RedriveSelection::Filter(Box::new(self.filter.to_filter()));
        let predictions = database.redrives.rehearse_redrive(&selection, &guards, self.limit).await?;
        if predictions.is_empty() {
            return Err(Error::failed("no dead letter matches"));
        }
        let answers = if self.run { self.run_handlers(database, &predictions).await? } else { BTreeMap::new() };
        let mut output = Output::new();
        for prediction in &predictions {
            let answer = answers.get(&prediction.id);
            if self.json {
                let Prediction { id, outcome, predecessor } = prediction;
                let prediction = outcome.as_str();
                output.json(
                    &json!({"id": id, "prediction": prediction, "predecessor": predecessor, "handler": answer}),
                )?;
            } else {
                output.line(&line(prediction, answer))?;
            }
        }
        output.flush()
    }

    async fn run_handlers(
        &self,
        database: &Database,
        predictions: &[Prediction],
    ) -> Result<BTreeMap<landfall::DeadLetterId, Answer>> {
        let letters = predictions.iter().filter(|prediction| rehearsal::can_run(prediction));
        let letters: Vec<_> = letters.map(|prediction| prediction.id).collect();
        let wait = Duration::from_secs(self.wait);
        Ok(rehearsal::run(&*database.rehearsals, &letters, &actor(self.actor.clone()), wait).await?)
    }
}

/// `17 ready, its handler fails with TIMEOUT: no answer`
fn line(prediction: &Prediction, answer: Option<&Answer>) -> String {
    let mut line = format!("{} {}", prediction.id, prediction.outcome.as_str());
    if let (Some(predecessor), Predicted::Waits | Predicted::Skipped(_)) = (prediction.predecessor, prediction.outcome)
    {
        line.push_str(&format!(" behind {predecessor}"));
    }
    if let Some(answer) = answer {
        line.push_str(&format!(", its handler {}", answer.outcome));
        if let (Some(code), Some(error)) = (&answer.error_code, &answer.error) {
            line.push_str(&format!(" with {code}: {error}"));
        }
    }
    line
}
