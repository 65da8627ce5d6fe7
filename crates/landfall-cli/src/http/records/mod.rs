//! `/v1/idempotency/…` and `/v1/tokens…`: idempotency records for services in any language.
//!
//! A service claims the key of a request, works, and completes it with its response; a repeat gets that response. All
//! of it is decided by the database. Every call but a claim may be repeated.

mod claim;
mod fields;
mod tokens;

use std::time::Duration;

use axum::extract::Request;
use bytes::Bytes;
use landfall::idempotency::Error;

use super::problem::Problem;
use super::{Shared, State, body, messages};

pub(super) use claim::{claim, complete, release, renew};
pub(super) use tokens::{consume, issue};

async fn read(state: &State, request: Request) -> Result<Bytes, Problem> {
    body::read(request.into_body(), messages::body_limit(&state.limits), state.request_timeout).await
}

/// Runs a call of the store in a task of its own: a client that disconnects must not cancel a statement half-way, which
/// desyncs some drivers.
async fn detached<T: Send + 'static>(
    call: impl Future<Output = landfall::Result<T>> + Send + 'static,
) -> Result<T, Problem> {
    let ended = tokio::spawn(call).await.map_err(|error| {
        landfall::Error::new(landfall::ErrorKind::Internal, "the idempotency record was not stored").with_source(error)
    })?;
    Ok(ended?)
}

/// The longest time that a client is told to wait before it tries again.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(30);

fn retry_after(remaining: Duration) -> u64 {
    remaining.min(LONGEST_RETRY_AFTER).as_millis().div_ceil(1000).max(1) as u64
}

/// Returns the sentence for a refusal that the library has too.
fn sentence(error: Error<landfall::Error>) -> String {
    error.to_string()
}
