//! `GET /healthz` (liveness: restart the daemon if it fails) and `GET /readyz` (readiness: send traffic while it
//! succeeds).

use std::time::Duration;

use axum::Json;
use landfall::Shard;
use serde_json::{Value, json};

use super::Shared;
use super::problem::Problem;

/// Time limit for the database call of the readiness check.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Succeeds unless only a restart helps: an embedded log that stopped after a failed write has to be reopened.
///
/// Calls no other machine, so that a database outage does not make an orchestrator restart every daemon.
pub(super) async fn alive(axum::extract::State(state): Shared) -> Result<Json<Value>, Problem> {
    state.broker.health().map_err(|error| Problem::unavailable(format!("restart the daemon: {error}")))?;
    Ok(Json(json!({"status": "ok"})))
}

/// Succeeds if the database responds and some relay, in this process or another, holds shards of the outbox. Leases
/// expire, so a held one was renewed recently.
pub(super) async fn ready(axum::extract::State(state): Shared) -> Result<Json<Value>, Problem> {
    if state.stop.is_cancelled() {
        return Err(Problem::unavailable("the daemon is stopping"));
    }
    state.broker.health()?;
    let held = match tokio::time::timeout(DATABASE_TIMEOUT, state.leases.held(Shard::LEASES)).await {
        Ok(held) => held.map_err(|error| Problem::unavailable(format!("the database is unavailable: {error}")))?,
        Err(_) => return Err(Problem::unavailable("the database is unavailable: no response within 2 seconds")),
    };
    if held.is_empty() {
        return Err(Problem::unavailable("no relay holds a shard of the outbox yet"));
    }
    Ok(Json(json!({"status": "ready"})))
}
