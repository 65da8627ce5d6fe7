//! `GET /healthz` (restart me if this fails) and `GET /readyz` (send me traffic while this succeeds).

use std::time::Duration;

use axum::Json;
use landfall::adapter::Shard;
use serde_json::{Value, json};

use super::Shared;
use super::problem::Problem;

/// A database that needs longer than this to answer is not answering.
const PATIENCE: Duration = Duration::from_secs(2);

/// The process runs, and a restart would mend nothing. Nothing is asked of another machine, so that an outage of the
/// database does not make an orchestrator restart every daemon; a log that stopped after a failed write is only mended
/// by opening it again.
pub(super) async fn alive(axum::extract::State(state): Shared) -> Result<Json<Value>, Problem> {
    state.broker.health().map_err(|error| Problem::unavailable(format!("start the daemon again: {error}")))?;
    Ok(Json(json!({"status": "ok"})))
}

/// The database answers and a relay (this one, or another that shares its work) holds shards of the outbox. Leases end
/// by themselves, so one that is held was renewed a moment ago.
pub(super) async fn ready(axum::extract::State(state): Shared) -> Result<Json<Value>, Problem> {
    if state.stop.is_cancelled() {
        return Err(Problem::unavailable("the daemon is stopping"));
    }
    state.broker.health()?;
    let held = match tokio::time::timeout(PATIENCE, state.leases.held(Shard::LEASES)).await {
        Ok(answer) => answer.map_err(|error| Problem::unavailable(format!("the database does not answer: {error}")))?,
        Err(_) => return Err(Problem::unavailable("the database does not answer within 2 seconds")),
    };
    if held.is_empty() {
        return Err(Problem::unavailable("no relay holds a shard of the outbox yet"));
    }
    Ok(Json(json!({"status": "ready"})))
}
