//! `POST /v1/idempotency/{claim,renew,complete,release}`.

use std::sync::Arc;

use axum::Json;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use landfall::idempotency::{
    Body, Claim, Epoch, Error, IdempotencyRecords, Identity, Outcome, Settled, Snapshot, Terms,
};
use serde::Serialize;
use serde_json::value::RawValue;

use super::fields::{Fields, Released};
use super::{Problem, Shared, detached, read, retry_after, sentence};
use crate::payload::to_base64;

#[derive(Debug, Serialize)]
struct Claimed {
    state: &'static str,
    epoch: Epoch,
}

#[derive(Debug, Serialize)]
pub(crate) struct Renewed {
    state: &'static str,
    epoch: Epoch,
    lease_s: u64,
}

#[derive(Debug, Serialize)]
struct Completed<'a> {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<&'a RawValue>,
    /// Of an answer that was stored by a program and is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    response_base64: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct State {
    state: &'static str,
}

const COMPLETED: &str = "completed";

/// Returns the fields of an identity, and `more`.
fn known(more: &[&'static str]) -> Vec<&'static str> {
    [&["scope", "business_type", "key", "business_id", "token"], more].concat()
}

pub(crate) async fn claim(axum::extract::State(state): Shared, request: Request) -> Result<Response, Problem> {
    let body = read(&state, request).await?;
    let fields = Fields::parse(&body, &known(&["fingerprint", "lease_s", "on_unknown"]))?;
    let (identity, fingerprint) = (fields.identity()?, fields.fingerprint()?);
    let mut terms = Terms::new(fields.on_unknown()?);
    terms.lease = fields.lease()?.unwrap_or(terms.lease);
    let records = state.records.clone();
    let claimed = detached(async move { records.claim_record(&identity, &fingerprint, &terms).await }).await?;
    match claimed {
        Claim::Claimed { epoch } => Ok(Json(Claimed { state: "claimed", epoch }).into_response()),
        Claim::Completed(answer) => completed(answer),
        refused => Err(refusal(refused)),
    }
}

/// Returns the stored answer. One without a body is never run again.
fn completed(answer: Snapshot) -> Result<Response, Problem> {
    let bytes = match answer.body {
        Body::Kept(bytes) => bytes,
        Body::NotKept => return Err(Problem::answer_gone("result-not-kept", sentence(not_kept(&answer, false)))),
        Body::Expired => return Err(Problem::answer_gone("result-expired", sentence(not_kept(&answer, true)))),
    };
    let response = serde_json::from_slice::<&RawValue>(&bytes).ok();
    let response_base64 = response.is_none().then(|| to_base64(&bytes));
    Ok(Json(Completed { state: COMPLETED, response, response_base64 }).into_response())
}

fn not_kept(answer: &Snapshot, is_expired: bool) -> Error<landfall::Error> {
    Error::NotKept { status: answer.status, is_expired }
}

pub(super) fn refusal(claim: Claim) -> Problem {
    match claim {
        Claim::Mismatch => Problem::different_request(sentence(Error::Mismatch)),
        Claim::NotIssued => Problem::token("token-invalid", sentence(Error::NotIssued)),
        Claim::InFlight { remaining } => {
            let seconds = retry_after(remaining);
            Problem::in_flight(sentence(Error::InFlight { retry_after: remaining }), seconds)
        }
        Claim::Uncertain | Claim::Claimed { .. } | Claim::Completed(_) => {
            Problem::uncertain(sentence(Error::Uncertain))
        }
    }
}

pub(crate) async fn renew(axum::extract::State(state): Shared, request: Request) -> Result<Json<Renewed>, Problem> {
    let body = read(&state, request).await?;
    let fields = Fields::parse(&body, &known(&["epoch", "lease_s"]))?;
    let (identity, epoch) = (fields.identity()?, fields.epoch()?);
    let lease = fields.lease()?.unwrap_or(Terms::LEASE);
    let records = state.records.clone();
    let remaining = detached(async move { records.renew_record(&identity, epoch, lease).await }).await?;
    let remaining = remaining.ok_or_else(|| Problem::lease_lost(epoch))?;
    Ok(Json(Renewed { state: "claimed", epoch, lease_s: remaining.as_secs() }))
}

pub(crate) async fn complete(axum::extract::State(state): Shared, request: Request) -> Result<Json<State>, Problem> {
    let body = read(&state, request).await?;
    let fields = Fields::parse(&body, &known(&["epoch", "response"]))?;
    let (identity, epoch) = (fields.identity()?, fields.epoch()?);
    let outcome = Outcome::Done(Snapshot::from_bytes(fields.response()?.to_owned()));
    settle(state, identity, epoch, outcome, COMPLETED).await
}

pub(crate) async fn release(axum::extract::State(state): Shared, request: Request) -> Result<Json<State>, Problem> {
    let body = read(&state, request).await?;
    let fields = Fields::parse(&body, &known(&["epoch", "outcome", "reason"]))?;
    let (identity, epoch, reason) = (fields.identity()?, fields.epoch()?, fields.reason()?);
    let (outcome, name) = match fields.released()? {
        Released::NothingDone => (Outcome::NothingDone, "released"),
        Released::Unknown => (Outcome::Unknown(reason.unwrap_or_else(|| "the caller reported it".into())), "unknown"),
    };
    settle(state, identity, epoch, outcome, name).await
}

async fn settle(
    state: Arc<super::State>,
    identity: Identity,
    epoch: Epoch,
    outcome: Outcome,
    name: &'static str,
) -> Result<Json<State>, Problem> {
    let records = state.records.clone();
    match detached(async move { records.settle_record(&identity, epoch, &outcome).await }).await? {
        Settled::Recorded => Ok(Json(State { state: name })),
        Settled::Lost(_) => Err(Problem::lease_lost(epoch)),
    }
}
