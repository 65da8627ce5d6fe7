//! `POST /v1/tokens` and `POST /v1/tokens/consume`: one-time tokens.

use std::time::Duration;

use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use landfall::Timestamp;
use landfall::idempotency::{
    Claim, FingerprintBuilder, Identity, OnUnknown, OneTimeTokens, Outcome, Scope, Settled, Snapshot, Terms, Token,
};
use serde::Serialize;

use super::claim::refusal;
use super::fields::Fields;
use super::{Problem, Shared, detached, read};

/// How long a token can be consumed, unless its request says otherwise.
const DEFAULT_TTL: Duration = Duration::from_secs(300);

/// How long a consume may hold a token before it is recorded. A daemon that is killed in between gives it back after
/// this.
const CONSUME_LEASE: Duration = Duration::from_secs(5);

#[derive(Debug, Serialize)]
pub(crate) struct Issued {
    token: String,
    expires_at: Timestamp,
}

#[derive(Debug, Serialize)]
pub(crate) struct Consumed {
    state: &'static str,
}

pub(crate) async fn issue(
    axum::extract::State(state): Shared,
    request: Request,
) -> Result<(StatusCode, Json<Issued>), Problem> {
    let body = read(&state, request).await?;
    let fields = Fields::parse(&body, &["business_type", "business_id", "ttl_s"])?;
    let (business_type, business_id) = fields.business()?;
    let ttl = fields.ttl()?.unwrap_or(DEFAULT_TTL);
    let token = Token::generate()?;
    let identity = token.identity(Scope::Global, &business_type, &business_id)?;
    let records = state.records.clone();
    let expires_at = detached(async move { records.issue_token(&identity, ttl).await }).await?;
    Ok((StatusCode::CREATED, Json(Issued { token: token.to_string(), expires_at })))
}

pub(crate) async fn consume(axum::extract::State(state): Shared, request: Request) -> Result<Json<Consumed>, Problem> {
    let body = read(&state, request).await?;
    let fields = Fields::parse(&body, &["business_type", "business_id", "token"])?;
    let identity = fields.token_identity()?;
    let records = state.records.clone();
    match detached(async move { consume_once(&*records, &identity).await }).await? {
        Claim::Claimed { .. } => Ok(Json(Consumed { state: "consumed" })),
        // A mismatch: a claim has consumed it, or is about to.
        Claim::Completed(_) | Claim::Mismatch => {
            Err(Problem::token("token-used", "the token was consumed before; issue a new one"))
        }
        refused => Err(refusal(refused)),
    }
}

/// Returns [`Claim::Claimed`] if this call has consumed the token.
async fn consume_once(records: &dyn OneTimeTokens, identity: &Identity) -> landfall::Result<Claim> {
    let terms = Terms { lease: CONSUME_LEASE, ceiling: CONSUME_LEASE, on_unknown: OnUnknown::Rerun };
    let claim = records.claim_record(identity, &FingerprintBuilder::empty(), &terms).await?;
    let Claim::Claimed { epoch } = claim else { return Ok(claim) };
    let done = Outcome::Done(Snapshot::from_bytes("null"));
    match records.settle_record(identity, epoch, &done).await? {
        Settled::Recorded => Ok(claim),
        // Slower than its lease, and another call has taken over.
        Settled::Lost(_) => Ok(Claim::InFlight { remaining: CONSUME_LEASE }),
    }
}
