//! `POST /v1/dead-letters/{id}/redrive`, `…/ignore` and `…/release`: changes of one letter.

use axum::extract::{Path, Request};
use axum::{Extension, Json};
use landfall::{DeadLetter, DeadLetterFilter, DeadLetterId, DeadLetterStatus, ImmediateRedrive, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{MAX_REASON_CHARACTERS, actor, detached, letter_id, words};
use crate::http::auth::Caller;
use crate::http::problem::Problem;
use crate::http::{Shared, State, body};

/// The most bytes of a body.
const BODY_LIMIT: usize = 16 * 1024;

/// The body of an action.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fields {
    reason: Option<String>,
    actor: Option<String>,
}

impl Fields {
    /// Returns the reason and the name for the audit trail.
    pub(super) fn reason_and_actor(&self, caller: &Caller) -> Result<(String, String), Problem> {
        let reason = match self.reason.as_deref() {
            Some(reason) => words("reason", reason, MAX_REASON_CHARACTERS)?.to_owned(),
            None => String::new(),
        };
        Ok((reason, actor(self.actor.as_deref(), caller)?))
    }
}

#[derive(Debug, Serialize)]
pub(in crate::http) struct Changed {
    id: DeadLetterId,
    status: DeadLetterStatus,
}

/// What a request says besides the letter.
struct Order {
    id: DeadLetterId,
    reason: String,
    actor: String,
}

pub(in crate::http) async fn redrive(
    axum::extract::State(state): Shared,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Changed>, Problem> {
    let order = order(&state, &caller, &id, request).await?;
    let id = order.id;
    Ok(Json(Changed { id, status: redrive_because(&state, order).await? }))
}

/// As [`redrive_because`], without a reason.
pub(in crate::http) async fn redrive_one(
    state: &State,
    id: DeadLetterId,
    actor: String,
) -> Result<DeadLetterStatus, Problem> {
    redrive_because(state, Order { id, reason: String::new(), actor }).await
}

/// Redrives one letter and returns its status afterwards.
async fn redrive_because(state: &State, order: Order) -> Result<DeadLetterStatus, Problem> {
    let Order { id, reason, actor } = order;
    let letter = one(state, id).await?;
    refuse_older(state, &letter)?;
    let filter = DeadLetterFilter { id: Some(id), ..Default::default() };
    let redrives = state.redrives.clone();
    let request = ImmediateRedrive { filter, guards: None, limit: None, reason };
    let done = detached(async move { redrives.redrive_at_once(&request, &actor).await }).await?;
    let letter = one(state, id).await?;
    if done.letters.redriven.is_empty() {
        return Err(Problem::letter_not_parked(id, letter.status));
    }
    Ok(letter.status)
}

pub(in crate::http) async fn ignore(
    axum::extract::State(state): Shared,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Changed>, Problem> {
    let Order { id, reason, actor } = order(&state, &caller, &id, request).await?;
    let letters = state.dead_letters.clone();
    detached(async move { letters.ignore(id, &reason, &actor).await }).await?;
    Ok(Json(Changed { id, status: DeadLetterStatus::Ignored }))
}

pub(in crate::http) async fn release(
    axum::extract::State(state): Shared,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Changed>, Problem> {
    let Order { id, reason, actor } = order(&state, &caller, &id, request).await?;
    let letters = state.dead_letters.clone();
    detached(async move { letters.release_ignored(id, &reason, &actor).await }).await?;
    Ok(Json(Changed { id, status: DeadLetterStatus::Parked }))
}

async fn order(state: &State, caller: &Caller, id: &str, request: Request) -> Result<Order, Problem> {
    let fields: Fields = parse_body(state, request).await?;
    let id = letter_id(id)?;
    let (reason, actor) = fields.reason_and_actor(caller)?;
    Ok(Order { id, reason, actor })
}

/// Reads a body that is a JSON object, or empty.
pub(super) async fn parse_body<T: DeserializeOwned + Default>(state: &State, request: Request) -> Result<T, Problem> {
    // The body first: a client that is refused while it still sends may get a reset instead of the response.
    let body = body::read(request.into_body(), BODY_LIMIT, state.request_timeout).await?;
    let wrong = |why: &dyn std::fmt::Display| Problem::invalid(format!("the body is not valid: {why}"));
    match body.trim_ascii_start().first() {
        None => Ok(T::default()),
        Some(b'{') => serde_json::from_slice(&body).map_err(|error| wrong(&error)),
        // serde would also accept an array with the values in field order.
        Some(_) => Err(wrong(&"it must be a JSON object, or empty")),
    }
}

pub(in crate::http) async fn one(state: &State, id: DeadLetterId) -> Result<DeadLetter, Problem> {
    let filter = DeadLetterFilter { id: Some(id), ..DeadLetterFilter::default() };
    let found = state.dead_letters.find(&filter, 1).await?.pop();
    found.ok_or_else(|| Problem::no_dead_letter(id))
}

/// Refuses a letter older than its retention: a duplicate may have taken effect, and its id may be forgotten.
fn refuse_older(state: &State, letter: &DeadLetter) -> Result<(), Problem> {
    let age = letter.first_seen.elapsed_since(Timestamp::now());
    if state.guards.max_age.is_some_and(|most| age > most) {
        return Err(Problem::letter_too_old(letter.id));
    }
    Ok(())
}
