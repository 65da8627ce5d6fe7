//! `/v1/redrives`: starts, shows and controls redrive jobs. `POST /ops/dlq/redrive` starts the same jobs.

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::{Path, RawQuery, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use landfall::{
    AtLeast, DeadLetterId, JobLetter, JobLetterState, MessageId, RedriveControl, RedriveId, RedriveJob, RedriveRequest,
    RedriveSelection, RedriveStarted, RedriveState,
};
use serde::Serialize;

use super::filter::{repeated, unknown};
use super::rehearse::{run_handlers, wait};
use super::request::{Fields, Run, from_query};
use super::{actions, actor, detached, letter_id, redrive_id};
use crate::http::auth::Caller;
use crate::http::deliveries::{DEFAULT_LIMIT, parse_limit};
use crate::http::problem::Problem;
use crate::http::{Shared, State, body, idempotency};
use crate::rehearsal::{self, Answer};

/// The most bytes of a body: room for the ids of the largest selection.
const BODY_LIMIT: usize = 2 * 1024 * 1024;

/// A dry run predicts up to this many letters.
const MAX_REHEARSED: usize = 10_000;

/// The most letters that [`count`] counts.
const MAX_COUNTED: u64 = 1_000_000;

#[derive(Debug, Serialize)]
pub(in crate::http) struct Accepted {
    id: RedriveId,
    state: RedriveState,
    matched: u64,
}

#[derive(Debug, Serialize)]
pub(in crate::http) struct Started {
    redrive: RedriveId,
    matched: u64,
}

#[derive(Debug, Serialize)]
pub(in crate::http) struct Page {
    items: Vec<RedriveJob>,
    /// The value of `before` for the next page.
    next: Option<RedriveId>,
}

#[derive(Debug, Serialize)]
pub(in crate::http) struct Receipt {
    #[serde(flatten)]
    job: RedriveJob,
    /// How often each reason for skipping a letter occurred.
    skips: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
pub(in crate::http) struct DryRun {
    state: &'static str,
    pub(in crate::http) matched: AtLeast,
    /// How many letters have each prediction.
    pub(in crate::http) predictions: BTreeMap<&'static str, u64>,
    /// What the handlers of a sample did. Empty unless the request asks to run some.
    handlers: Vec<HandlerRun>,
}

#[derive(Debug, Serialize)]
struct HandlerRun {
    id: DeadLetterId,
    #[serde(flatten)]
    answer: Answer,
}

pub(in crate::http) async fn start(
    axum::extract::State(state): Shared,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let body = body::read(body, BODY_LIMIT, state.request_timeout).await?;
    let fields = Fields::parse(&body)?;
    let given = idempotency::message_id(None, &head.headers)?;
    let (run, actor) = (fields.handlers_to_run()?, actor(fields.actor.as_deref(), &caller)?);
    // A person who asks to run handlers without effect must not start a redrive.
    let is_dry = fields.dry_run.unwrap_or_default() || run.letters > 0;
    let request = fields.into_request(given)?;
    if is_dry {
        return Ok(Json(dry_run(&state, request.selection, run, actor).await?).into_response());
    }
    let job = store(&state, request, actor).await?;
    let accepted = Accepted { id: job.id, state: job.state, matched: job.counts.matched };
    Ok((StatusCode::ACCEPTED, Json(accepted)).into_response())
}

pub(in crate::http) async fn start_by_query(
    axum::extract::State(state): Shared,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<(StatusCode, Json<Started>), Problem> {
    let (head, body) = request.into_parts();
    // Nothing is expected in the body. It is read so that the client gets the response and not a reset.
    body::read(body, BODY_LIMIT, state.request_timeout).await?;
    let given = idempotency::message_id(None, &head.headers)?;
    let (request, name) = from_query(query.as_deref().unwrap_or_default(), given)?;
    let job = store(&state, request, actor(name.as_deref(), &caller)?).await?;
    Ok((StatusCode::ACCEPTED, Json(Started { redrive: job.id, matched: job.counts.matched })))
}

pub(in crate::http) async fn store(
    state: &State,
    request: RedriveRequest,
    actor: String,
) -> Result<RedriveJob, Problem> {
    let redrives = state.redrives.clone();
    match detached(async move { redrives.start_redrive(&request, &actor).await }).await? {
        RedriveStarted::New(job) | RedriveStarted::Repeated(job) => Ok(job),
        RedriveStarted::Conflict(id) => Err(Problem::different_redrive(id)),
    }
}

pub(in crate::http) async fn dry_run(
    state: &State,
    selection: RedriveSelection,
    run: Run,
    actor: String,
) -> Result<DryRun, Problem> {
    let (redrives, guards) = (state.redrives.clone(), state.guards.clone());
    let rehearsed = async move { redrives.rehearse_redrive(&selection, &guards, MAX_REHEARSED + 1).await };
    let mut letters = detached(rehearsed).await?;
    let at_least = letters.len() > MAX_REHEARSED;
    letters.truncate(MAX_REHEARSED);
    let mut predictions: BTreeMap<&'static str, u64> = BTreeMap::new();
    for letter in &letters {
        *predictions.entry(letter.outcome.as_str()).or_default() += 1;
    }
    let matched = AtLeast { count: letters.len() as u64, at_least };
    let sample = letters.iter().filter(|letter| rehearsal::can_run(letter)).take(run.letters).map(|letter| letter.id);
    let answers = run_handlers(state, sample.collect(), actor, wait(run.wait_s)?).await?;
    let handlers = answers.into_iter().map(|(id, answer)| HandlerRun { id, answer }).collect();
    Ok(DryRun { state: "dry-run", matched, predictions, handlers })
}

/// Returns how many letters a redrive of the selection would freeze now.
pub(in crate::http) async fn count(state: &State, selection: &RedriveSelection) -> Result<u64, Problem> {
    let filter = match selection {
        RedriveSelection::Ids(ids) => return Ok(ids.iter().collect::<BTreeSet<_>>().len() as u64),
        RedriveSelection::Filter(filter) => filter.as_ref().clone().or_parked(),
    };
    let letters = state.dead_letters.clone();
    let counted = detached(async move { letters.count_letters(&filter, MAX_COUNTED).await }).await?;
    if counted.at_least {
        return Err(Problem::invalid(format!(
            "more than {MAX_COUNTED} messages match, which the console does not redrive at once; narrow the selection, \
             or use `landfall dlq redrive`"
        )));
    }
    Ok(counted.count)
}

pub(in crate::http) async fn list(
    axum::extract::State(state): Shared,
    RawQuery(query): RawQuery,
) -> Result<Json<Page>, Problem> {
    let (before, limit) = parse(query.as_deref().unwrap_or_default())?;
    let items = state.redrives.redrive_jobs(before, limit).await?;
    let next = items.last().filter(|_| items.len() == limit).map(|last| last.id);
    Ok(Json(Page { items, next }))
}

pub(in crate::http) async fn show(
    axum::extract::State(state): Shared,
    Path(id): Path<String>,
) -> Result<Json<Receipt>, Problem> {
    let id = redrive_id(&id)?;
    let job = state.redrives.redrive_job(id).await?.ok_or_else(|| Problem::no_redrive(id))?;
    let skips = state.redrives.redrive_skips(id).await?.into_iter().collect();
    Ok(Json(Receipt { job, skips }))
}

pub(in crate::http) async fn pause(
    state: Shared,
    caller: Extension<Caller>,
    id: Path<String>,
    request: Request,
) -> Result<Json<RedriveJob>, Problem> {
    control(state, caller, id, request, RedriveControl::Pause).await
}

pub(in crate::http) async fn resume(
    state: Shared,
    caller: Extension<Caller>,
    id: Path<String>,
    request: Request,
) -> Result<Json<RedriveJob>, Problem> {
    control(state, caller, id, request, RedriveControl::Resume).await
}

pub(in crate::http) async fn stop(
    state: Shared,
    caller: Extension<Caller>,
    id: Path<String>,
    request: Request,
) -> Result<Json<RedriveJob>, Problem> {
    control(state, caller, id, request, RedriveControl::Stop).await
}

async fn control(
    axum::extract::State(state): Shared,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    request: Request,
    control: RedriveControl,
) -> Result<Json<RedriveJob>, Problem> {
    let fields: actions::Fields = actions::parse_body(&state, request).await?;
    let (id, redrives) = (redrive_id(&id)?, state.redrives.clone());
    let (reason, actor) = fields.reason_and_actor(&caller)?;
    Ok(Json(detached(async move { redrives.control_redrive_because(id, control, &reason, &actor).await }).await?))
}

#[derive(Debug, Serialize)]
pub(in crate::http) struct Items {
    items: Vec<JobLetter>,
    /// The value of `after` for the next page.
    next: Option<DeadLetterId>,
}

/// `GET /v1/redrives/{id}/items`: the letters of a job with their outcomes.
pub(in crate::http) async fn items(
    axum::extract::State(state): Shared,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Items>, Problem> {
    let id = redrive_id(&id)?;
    let (mut letters, mut after, mut limit) = (None, None, None);
    for (name, value) in form_urlencoded::parse(query.as_deref().unwrap_or_default().as_bytes()) {
        let is_repeated = match &*name {
            "state" => letters.replace(value.parse::<JobLetterState>()?).is_some(),
            "after" => after.replace(letter_id(&value)?).is_some(),
            "limit" => limit.replace(parse_limit(&value)?).is_some(),
            name => return Err(unknown(name)),
        };
        if is_repeated {
            return Err(repeated(&name));
        }
    }
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    state.redrives.redrive_job(id).await?.ok_or_else(|| Problem::no_redrive(id))?;
    let items = state.redrives.job_letters(id, letters, after, limit).await?;
    let next = items.last().filter(|_| items.len() == limit).map(|last| last.dead_letter_id);
    Ok(Json(Items { items, next }))
}

/// Returns the end of the previous page and the limit.
fn parse(query: &str) -> Result<(Option<MessageId>, usize), Problem> {
    let (mut before, mut limit) = (None, None);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let is_repeated = match &*name {
            "before" => before.replace(redrive_id(&value)?).is_some(),
            "limit" => limit.replace(parse_limit(&value)?).is_some(),
            name => return Err(unknown(name)),
        };
        if is_repeated {
            return Err(repeated(&name));
        }
    }
    Ok((before, limit.unwrap_or(DEFAULT_LIMIT)))
}
