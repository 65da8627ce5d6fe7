//! `POST /v1/dead-letters/{id}/rehearse`: predicts what a redrive would do with one letter, and runs its handler
//! without effect if asked to.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::{Path, Request};
use axum::{Extension, Json};
use landfall::{DeadLetterId, Predicted, RedriveSelection};
use serde::{Deserialize, Serialize};

use super::actions::parse_body;
use super::request::Whole;
use super::{MAX_REASON_CHARACTERS, actor, detached, letter_id, words};
use crate::http::auth::Caller;
use crate::http::problem::Problem;
use crate::http::{Shared, State};
use crate::rehearsal::{self, Answer, DEFAULT_WAIT, MAX_WAIT};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    /// As in the other routes of a letter. Not stored: a rehearsal changes nothing.
    reason: Option<String>,
    actor: Option<String>,
    /// Whether the handler is run.
    run: Option<bool>,
    /// How long to wait for its outcome.
    wait_s: Option<Whole>,
}

/// What a job would do with the letter now.
#[derive(Debug, Serialize)]
pub(in crate::http) struct Rehearsed {
    id: DeadLetterId,
    prediction: &'static str,
    predecessor: Option<DeadLetterId>,
    /// What the handler did; `None` if it was not asked for or cannot be run.
    handler: Option<Answer>,
}

pub(in crate::http) async fn rehearse(
    axum::extract::State(state): Shared,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Rehearsed>, Problem> {
    let fields: Fields = parse_body(&state, request).await?;
    let (id, wait) = (letter_id(&id)?, wait(fields.wait_s.map(Whole::unsigned))?);
    if let Some(reason) = &fields.reason {
        words("reason", reason, MAX_REASON_CHARACTERS)?;
    }
    let actor = actor(fields.actor.as_deref(), &caller)?;
    let (redrives, guards) = (state.redrives.clone(), state.guards.clone());
    let selection = RedriveSelection::Ids(vec![id]);
    let predicted = detached(async move { redrives.rehearse_redrive(&selection, &guards, 1).await }).await?;
    let prediction = predicted.first().filter(|letter| letter.outcome != Predicted::Missing).copied();
    let prediction = prediction.ok_or_else(|| Problem::no_dead_letter(id))?;
    let handler = match fields.run.unwrap_or_default() && rehearsal::can_run(&prediction) {
        true => run_handlers(&state, vec![id], actor, wait).await?.remove(&id),
        false => None,
    };
    let (prediction, predecessor) = (prediction.outcome.as_str(), prediction.predecessor);
    Ok(Json(Rehearsed { id, prediction, predecessor, handler }))
}

/// Returns the time that a request waits for handlers.
pub(super) fn wait(seconds: Option<u64>) -> Result<Duration, Problem> {
    let wait = seconds.map_or(DEFAULT_WAIT, Duration::from_secs);
    if wait.is_zero() || wait > MAX_WAIT {
        return Err(Problem::invalid(format!("wait_s must be a number from 1 to {}", MAX_WAIT.as_secs())));
    }
    Ok(wait)
}

pub(super) async fn run_handlers(
    state: &State,
    letters: Vec<DeadLetterId>,
    actor: String,
    wait: Duration,
) -> Result<BTreeMap<DeadLetterId, Answer>, Problem> {
    let rehearsals = state.rehearsals.clone();
    detached(async move { rehearsal::run(&*rehearsals, &letters, &actor, wait).await }).await
}
