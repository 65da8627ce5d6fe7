//! The daemon's HTTP routes.
//!
//! | route | file |
//! |---|---|
//! | `GET /`, `/openapi.json` | [`index`] |
//! | `GET /healthz`, `/readyz` | [`health`] |
//! | `GET /metrics` | [`metrics`] |
//! | `GET /v1/deliveries` | [`deliveries`] |
//! | `POST /v1/messages` | [`messages`], [`idempotency`] |
//!
//! Invariants: every error response is a [`problem`], and every request names one [`host`]. If tokens are configured,
//! every route but the first four needs one ([`auth`]).

mod auth;
mod body;
mod deliveries;
mod health;
mod host;
mod idempotency;
mod index;
mod messages;
pub(crate) mod metrics;
mod pair_gauge;
mod problem;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{MethodRouter, get, post};
use landfall::{DeadLetters, Deliveries, IdempotentAppend, Leases, Limits, OutboxQueue, OutboxView};
use tokio_util::sync::CancellationToken;

use crate::config::Token;
use crate::daemon::Waiting;
use crate::stores::broker::OpenBroker;
use problem::Problem;

/// Shared by all handlers.
pub(crate) struct State {
    pub(crate) queue: Arc<dyn OutboxQueue>,
    pub(crate) sends: Arc<dyn IdempotentAppend>,
    pub(crate) view: Arc<dyn OutboxView>,
    pub(crate) leases: Arc<dyn Leases>,
    pub(crate) dead_letters: Arc<dyn DeadLetters>,
    pub(crate) deliveries: Arc<dyn Deliveries>,
    pub(crate) broker: Arc<dyn OpenBroker>,
    pub(crate) limits: Limits,
    pub(crate) tokens: Vec<Token>,
    pub(crate) request_timeout: Duration,
    pub(crate) metrics: metrics::Metrics,
    /// Cancelled when shutdown begins.
    pub(crate) stop: CancellationToken,
}

/// The routes of a daemon that waits for its database or broker.
pub(crate) fn starting(waiting: Waiting, has_tokens: bool) -> Router {
    let not_ready = async move || health::starting(&waiting);
    Router::new()
        .route("/healthz", get(health::started))
        .fallback(not_ready)
        .layer(from_fn_with_state(has_tokens, auth::refuse_other_sites))
        .layer(from_fn(host::check))
}

type Shared = axum::extract::State<Arc<State>>;

/// Every route. The OpenAPI document has the same paths.
fn routes() -> [(&'static str, MethodRouter<Arc<State>>); 7] {
    [
        ("/", get(index::page)),
        ("/openapi.json", get(index::openapi)),
        ("/healthz", get(health::alive)),
        ("/readyz", get(health::ready)),
        ("/metrics", get(metrics::render)),
        ("/v1/deliveries", get(deliveries::list)),
        ("/v1/messages", post(messages::post)),
    ]
}

pub(crate) fn router(state: State) -> Router {
    let (has_tokens, state) = (!state.tokens.is_empty(), Arc::new(state));
    routes()
        .into_iter()
        .fold(Router::new(), |router, (path, methods)| router.route(path, methods))
        .fallback(async |request: Request| Problem::not_found(request.uri().path()))
        .method_not_allowed_fallback(async |request: Request| {
            Problem::method_not_allowed(request.method().as_str(), request.uri().path())
        })
        .layer(from_fn_with_state(state.clone(), auth::check_token))
        .layer(from_fn_with_state(has_tokens, auth::refuse_other_sites))
        .layer(from_fn(host::check))
        .with_state(state)
}
