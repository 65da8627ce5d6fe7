//! `GET /healthz` (liveness: restart the daemon if it fails) and `GET /readyz` (readiness: send traffic while it
//! succeeds).

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use landfall::adapter::Shard;
use serde_json::{Value, json};

use super::problem::Problem;
use super::{Shared, State};
use crate::daemon::Waiting;

/// Time limit for each question to the database or the broker.
pub(super) const TIMEOUT: Duration = Duration::from_secs(2);

/// Succeeds unless only a restart helps: an embedded log that stopped after a failed write has to be reopened.
///
/// Calls no other machine, so that a database outage does not make an orchestrator restart every daemon.
pub(super) async fn alive(axum::extract::State(state): Shared) -> Result<Json<Value>, Problem> {
    state.broker.health().map_err(|error| Problem::unavailable(format!("restart the daemon: {error}")))?;
    Ok(Json(json!({"status": "ok"})))
}

/// Liveness of a daemon that waits for a server: a restart would not help.
pub(super) async fn started() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

/// Succeeds if the database and the broker respond and some relay, in this process or another, holds shards of the
/// outbox. Leases expire, so a held one was renewed recently. The body names each part.
pub(super) async fn ready(axum::extract::State(state): Shared) -> Result<Json<Value>, Problem> {
    if state.stop.is_cancelled() {
        return Err(Problem::unavailable("the daemon is stopping"));
    }
    let (held, broker) = tokio::join!(within(state.leases.held(Shard::LEASES)), ask_broker(&state));
    let relay = match &held {
        Ok(held) if held.is_empty() => Some("no relay holds a shard of the outbox yet".to_owned()),
        _ => None,
    };
    let parts = [("database", held.err()), ("broker", broker.err()), ("relay", relay)];
    answer("ready", parts.into_iter().collect())
}

/// The readiness of a daemon that has not started yet.
pub(super) fn starting(waiting: &Waiting) -> Problem {
    let mut parts: BTreeMap<_, _> = waiting.parts().into_iter().map(|(part, error)| (part, Some(error))).collect();
    parts.entry("relay").or_insert_with(|| Some("the daemon is starting".into()));
    not_ready(&parts)
}

/// Asks the broker whether it accepts messages.
pub(super) async fn ask_broker(state: &State) -> Result<(), String> {
    state.broker.health().map_err(|error| error.to_string())?;
    within(state.broker.ping()).await
}

async fn within<T>(question: impl Future<Output = landfall::Result<T>>) -> Result<T, String> {
    match tokio::time::timeout(TIMEOUT, question).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no response within {} seconds", TIMEOUT.as_secs())),
    }
}

/// Parts by name, with the reason of each that is not ready.
type Parts = BTreeMap<&'static str, Option<String>>;

fn answer(status: &str, parts: Parts) -> Result<Json<Value>, Problem> {
    match parts.values().any(Option::is_some) {
        true => Err(not_ready(&parts)),
        false => Ok(Json(json!({"status": status, "parts": describe(&parts)}))),
    }
}

fn not_ready(parts: &Parts) -> Problem {
    let reason = |(part, reason): (&&str, &Option<String>)| {
        let reason = reason.as_ref()?;
        Some(if *part == "relay" { reason.clone() } else { format!("the {part} is unavailable: {reason}") })
    };
    let reasons: Vec<_> = parts.iter().filter_map(reason).collect();
    Problem::unavailable(reasons.join("; ")).with_parts(describe(parts))
}

fn describe(parts: &Parts) -> Value {
    let part = |(part, reason): (&&str, &Option<String>)| {
        let state = match reason {
            None => json!({"ready": true}),
            Some(reason) => json!({"ready": false, "reason": reason}),
        };
        ((*part).to_owned(), state)
    };
    Value::Object(parts.iter().map(part).collect())
}
