//! The reverse proxy of `[[idempotent_route]]`: `Idempotency-Key` for services written in anything.
//!
//! ```text
//!   client ─▶ route ─▶ authorize? ─▶ IdempotencyLayer ─▶ upstream, once ─▶ answer, stored
//!               │          └ 401, 403     └ repeat: the stored answer
//!               └ none: 404
//! ```
//!
//! * [`pattern`] decides which requests a route takes, [`route`] builds its layers;
//! * [`authorize`] asks whether a caller may, before every run and every replay;
//! * [`upstream`] forwards a request once, and says what is known of its effect; [`headers`] are those it passes on.
//!
//! Invariants: a request is sent to its service at most once, whatever fails. A request whose end or path two servers
//! could read differently is refused.

mod authorize;
mod headers;
mod pattern;
mod route;
mod upstream;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use landfall::idempotency::Idempotency;
use tower_service::Service;

use crate::config::{Config, IdempotentRoute, Push};
use crate::error::Result;
use crate::http::host;
use crate::http::problem::Problem;
use crate::push::Rules;
use crate::push::connector::Connector;

pub(crate) use pattern::{PathParameter, Pattern};

/// The address of a client, in the extensions of its requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// The validated routes, without the store of their records.
pub(crate) struct Routes {
    routes: Vec<IdempotentRoute>,
    connector: Connector,
    /// Time limit for the body of a request with a key.
    body_timeout: Duration,
    /// The scheme of the listener.
    scheme: &'static str,
}

impl Routes {
    /// Prepares the routes; `None` if there are none.
    pub(crate) fn prepare(config: &Config, scheme: &'static str) -> Result<Option<Self>> {
        if config.idempotent_route.is_empty() {
            return Ok(None);
        }
        let mut routes = config.idempotent_route.clone();
        routes.sort_by(|one, other| one.pattern.precedence(&other.pattern));
        let connector = Connector::new(&reach(config))?;
        Ok(Some(Self { routes, connector, body_timeout: config.http.request_timeout, scheme }))
    }

    pub(crate) fn router(&self, engine: &Idempotency) -> Router {
        let service = |route: &IdempotentRoute| (route.pattern.clone(), route::service(route, self, engine));
        let routes: Vec<(Pattern, Router)> = self.routes.iter().map(service).collect();
        Router::new().fallback(dispatch).layer(from_fn(host::check)).with_state(Arc::new(routes))
    }
}

/// Which addresses the proxy connects to: all. The operator wrote them, and clients cannot choose another one.
pub(crate) fn reach(config: &Config) -> Push {
    let rules = Rules { section: "idempotent_route", allow_private_addresses: true, ..Rules::default() };
    Push { rules, ca_file: config.push.ca_file.clone() }
}

/// The answer to every request until the daemon has started.
pub(crate) fn starting() -> Router {
    Router::new().fallback(async || Problem::unavailable("the proxy is starting; nothing was forwarded"))
}

async fn dispatch(State(routes): State<Arc<Vec<(Pattern, Router)>>>, request: Request) -> Response {
    if let Err(refusal) = headers::check(request.headers()) {
        return refusal.into_response();
    }
    let path = request.uri().path();
    if pattern::has_dot_segments(path) {
        return Problem::invalid("the path contains . or .., which servers resolve differently").into_response();
    }
    let found = routes.iter().find(|(pattern, _)| pattern.matches(request.method(), path));
    let Some((_, service)) = found else {
        return Problem::not_routed(request.method().as_str(), path).into_response();
    };
    let Ok(response) = service.clone().call(request).await;
    response
}
