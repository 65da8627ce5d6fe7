//! The daemon's HTTP routes.
//!
//! | route | file |
//! |---|---|
//! | `GET /`, `/openapi.json` | [`index`] |
//! | `/`, `/console/…` with the role `console` | [`console`] |
//! | `GET /healthz`, `/readyz` | [`health`] |
//! | `GET /metrics` | [`metrics`] |
//! | `/v1/alerts…`, `GET /v1/alert-notices` | [`alerts`] |
//! | `GET /v1/deliveries` | [`deliveries`] |
//! | `/v1/dead-letters…`, `/v1/redrives…`, `/ops/dlq/redrive`, `/v1/audit` | [`dlq`] |
//! | `/v1/half-messages…` | [`half_messages`] |
//! | `/v1/idempotency/…`, `/v1/tokens…` | [`records`] |
//! | `POST /v1/messages` | [`messages`], [`idempotency`], [`group_commit`] |
//! | gRPC, with the feature `grpc` | `grpc` |
//!
//! Invariants: every error response is a [`problem`], and every request names one [`host`]. If tokens are configured,
//! every route but the first four needs one ([`auth`]).

mod alerts;
mod auth;
pub(crate) mod body;
mod code_gauge;
mod console;
mod deliveries;
mod dlq;
mod group_commit;
#[cfg(feature = "grpc")]
mod grpc;
mod half_messages;
mod health;
pub(crate) mod host;
mod idempotency;
mod index;
mod messages;
pub(crate) mod metrics;
mod pair_gauge;
pub(crate) mod problem;
mod records;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{MethodRouter, get, post};
use landfall::idempotency::CountedRecords;
use landfall::{
    Alerts, AuditTrail, DeadLetters, Deliveries, HalfMessages, KeyRules, Leases, LetterGroups, Limits, OutboxView,
    RedriveGuards, Redrives, Rehearsals,
};
use tokio_util::sync::CancellationToken;

use crate::config::Token;
use crate::daemon::Waiting;
use crate::stores::broker::OpenBroker;
pub(crate) use console::Console;
pub(crate) use group_commit::GroupCommit;
pub(crate) use idempotency::sender_id;
use problem::Problem;

/// Shared by all handlers.
pub(crate) struct State {
    pub(crate) appends: GroupCommit,
    pub(crate) view: Arc<dyn OutboxView>,
    pub(crate) leases: Arc<dyn Leases>,
    pub(crate) dead_letters: Arc<dyn DeadLetters>,
    pub(crate) redrives: Arc<dyn Redrives>,
    pub(crate) rehearsals: Arc<dyn Rehearsals>,
    pub(crate) audit: Arc<dyn AuditTrail>,
    pub(crate) alerts: Arc<dyn Alerts>,
    /// The names of the alert rules, for the metric of each.
    pub(crate) alert_rules: Vec<String>,
    pub(crate) letter_groups: Arc<dyn LetterGroups>,
    pub(crate) key_rules: Arc<dyn KeyRules>,
    /// The guards of redrive jobs. Letters older than `max_age` are redriven by no request.
    pub(crate) guards: RedriveGuards,
    pub(crate) deliveries: Arc<dyn Deliveries>,
    pub(crate) half: Arc<dyn HalfMessages>,
    pub(crate) records: Arc<CountedRecords>,
    /// The immunity period of half messages without their own.
    pub(crate) immunity: Duration,
    pub(crate) broker: Arc<dyn OpenBroker>,
    pub(crate) limits: Limits,
    pub(crate) tokens: Vec<Token>,
    pub(crate) request_timeout: Duration,
    pub(crate) metrics: metrics::Metrics,
    /// `None` without the role `console`.
    pub(crate) console: Option<Console>,
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
        .translated()
}

type Shared = axum::extract::State<Arc<State>>;

/// Every route. The OpenAPI document has the same paths.
fn routes() -> [(&'static str, MethodRouter<Arc<State>>); 37] {
    [
        ("/", get(index::page)),
        ("/openapi.json", get(index::openapi)),
        ("/healthz", get(health::alive)),
        ("/readyz", get(health::ready)),
        ("/metrics", get(metrics::render)),
        ("/ops/dlq/redrive", post(dlq::redrives::start_by_query)),
        ("/v1/alert-notices", get(alerts::notices)),
        ("/v1/alerts", get(alerts::list)),
        ("/v1/alerts/{id}/mute", post(alerts::mute)),
        ("/v1/audit", get(dlq::audit::list)),
        ("/v1/dead-letter-groups", get(dlq::letters::groups)),
        ("/v1/dead-letter-groups/{fingerprint}", post(dlq::groups::change)),
        ("/v1/dead-letters", get(dlq::letters::list)),
        ("/v1/dead-letters/{id}", get(dlq::letters::show)),
        ("/v1/dead-letters/{id}/ignore", post(dlq::actions::ignore)),
        ("/v1/dead-letters/{id}/redrive", post(dlq::actions::redrive)),
        ("/v1/dead-letters/{id}/rehearse", post(dlq::rehearse::rehearse)),
        ("/v1/dead-letters/{id}/release", post(dlq::actions::release)),
        ("/v1/redrives", get(dlq::redrives::list).post(dlq::redrives::start)),
        ("/v1/redrives/{id}", get(dlq::redrives::show)),
        ("/v1/redrives/{id}/items", get(dlq::redrives::items)),
        ("/v1/redrives/{id}/pause", post(dlq::redrives::pause)),
        ("/v1/redrives/{id}/resume", post(dlq::redrives::resume)),
        ("/v1/redrives/{id}/stop", post(dlq::redrives::stop)),
        ("/v1/deliveries", get(deliveries::list)),
        ("/v1/half-messages", get(half_messages::list).post(half_messages::prepare)),
        ("/v1/half-messages/{id}", get(half_messages::show)),
        ("/v1/half-messages/{id}/commit", post(half_messages::commit)),
        ("/v1/half-messages/{id}/rollback", post(half_messages::rollback)),
        ("/v1/idempotency/claim", post(records::claim)),
        ("/v1/idempotency/complete", post(records::complete)),
        ("/v1/idempotency/release", post(records::release)),
        ("/v1/idempotency/renew", post(records::renew)),
        ("/v1/key-rules", get(dlq::keys::list).post(dlq::keys::change)),
        ("/v1/messages", post(messages::post)),
        ("/v1/tokens", post(records::issue)),
        ("/v1/tokens/consume", post(records::consume)),
    ]
}

pub(crate) fn router(state: State) -> Router {
    let (has_tokens, state) = (!state.tokens.is_empty(), Arc::new(state));
    // The start page of the console replaces the plain one.
    let router = if state.console.is_some() { console::router() } else { Router::new() };
    let routes = routes().into_iter().filter(|(path, _)| *path != "/" || state.console.is_none());
    let router = routes.fold(router, |router, (path, methods)| router.route(path, methods));
    #[cfg(feature = "grpc")]
    let router = router.merge(grpc::router(state.clone()));
    router
        .fallback(async |request: Request| Problem::not_found(request.uri().path()))
        .method_not_allowed_fallback(async |request: Request| {
            Problem::method_not_allowed(request.method().as_str(), request.uri().path())
        })
        .layer(from_fn_with_state(state.clone(), auth::check_token))
        .layer(from_fn_with_state(has_tokens, auth::refuse_other_sites))
        .layer(from_fn(host::check))
        .with_state(state)
        .translated()
}

/// Adds what turns a problem into a status of gRPC, if the request is such a call.
trait Translated {
    fn translated(self) -> Self;
}

impl Translated for Router {
    fn translated(self) -> Self {
        #[cfg(feature = "grpc")]
        let router = self.layer(from_fn(grpc::status::translate));
        #[cfg(not(feature = "grpc"))]
        let router = self;
        router
    }
}
