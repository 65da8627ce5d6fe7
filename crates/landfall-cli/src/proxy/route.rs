//! The layers of one route: permission, the body, idempotency, the service.
#![allow(clippy::result_large_err, reason = "the layer takes the response itself as the error")]

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use landfall::idempotency::layer::{IDEMPOTENCY_KEY, IDEMPOTENT_TOKEN, IdempotencyLayer};
use landfall::idempotency::{Idempotency, Policy, Scope, Terms};
use ring::digest;

use super::Routes;
use super::authorize::{self, Authorized, Authorizer};
use super::upstream::Upstream;
use crate::config::{IdempotentRoute, RouteScope};
use crate::http::body;
use crate::http::problem::Problem;

pub(super) fn service(route: &IdempotentRoute, routes: &Routes, engine: &Idempotency) -> Router {
    let terms = Terms { lease: route.lease, ..Terms::new(route.on_unknown) };
    let policy = Policy { terms, wait: route.wait };
    let (scope, takes_tokens) = (route.scope.clone(), route.token_business_id.is_some());
    let find = move |parts: &Parts| {
        let scope = find_scope(&scope, parts).map_err(IntoResponse::into_response)?;
        // `POST /v1/tokens` binds a token to its business, and to no caller.
        let has_token = takes_tokens && parts.headers.contains_key(IDEMPOTENT_TOKEN);
        Ok(if has_token { Scope::Global } else { scope })
    };
    let mut layer = IdempotencyLayer::new(engine.clone(), route.business_type.clone(), policy, find)
        .with_body_limit(route.max_body_bytes);
    if route.needs_key {
        layer = layer.require_key();
    }
    if let Some(business_id) = route.token_business_id {
        layer = layer.accept_tokens(move |parts| business_id.of(parts.uri.path()));
    }
    let upstream = Arc::new(Upstream::new(&routes.connector, route, routes.scheme));
    let forward = async move |request: Request| upstream.forward(request).await;
    let reading = Reading { limit: route.max_body_bytes, timeout: routes.body_timeout, takes_tokens };
    let router = Router::new().fallback(forward).layer(layer).layer(from_fn_with_state(reading, read_body));
    match &route.authorize {
        None => router,
        Some(url) => {
            let authorizer = Arc::new(Authorizer::new(&routes.connector, url.clone(), route.timeout));
            router.layer(from_fn_with_state(authorizer, authorize::check))
        }
    }
}

/// Bounds for the body of a request with a key or a token, which is read before it is forwarded.
#[derive(Debug, Clone, Copy)]
struct Reading {
    limit: usize,
    timeout: Duration,
    takes_tokens: bool,
}

async fn read_body(State(reading): State<Reading>, request: Request, next: Next) -> Result<Response, Problem> {
    let headers = request.headers();
    let has_token = reading.takes_tokens && headers.contains_key(IDEMPOTENT_TOKEN);
    let is_once = headers.contains_key(IDEMPOTENCY_KEY) || has_token;
    if request.method().is_safe() || !is_once {
        return Ok(next.run(request).await);
    }
    let (parts, body) = request.into_parts();
    let body = body::read(body, reading.limit, reading.timeout).await?;
    Ok(next.run(Request::from_parts(parts, Body::from(body))).await)
}

fn find_scope(scope: &RouteScope, parts: &Parts) -> Result<Scope, Problem> {
    let principal = |name: &str| {
        Scope::principal(name).map_err(|error| Problem::invalid(format!("the principal of the request: {error}")))
    };
    match scope {
        RouteScope::Global => Ok(Scope::Global),
        RouteScope::Authorization => {
            let credentials = single(&parts.headers, &header::AUTHORIZATION)?;
            principal(&hashed(credentials.ok_or_else(Problem::no_credentials)?))
        }
        RouteScope::Header(name) => {
            let missing =
                || Problem::invalid(format!("the request needs the header {name}, which names its principal"));
            principal(text(single(&parts.headers, name)?.ok_or_else(missing)?)?)
        }
        RouteScope::Authorized(name) => {
            let granted = parts.extensions.get::<Authorized>();
            let value = granted.and_then(|Authorized(headers)| headers.get(name)).and_then(|value| value.to_str().ok());
            let missing = || Problem::bad_gateway(format!("the answer of authorize has no header {name}"));
            principal(value.ok_or_else(missing)?)
        }
    }
}

/// Returns a header that must not be repeated: the service could read another value than this.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, Problem> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    if values.next().is_some() {
        return Err(Problem::invalid(format!("the header {name} is repeated")));
    }
    Ok(value.map(|value| value.as_bytes()))
}

fn text(bytes: &[u8]) -> Result<&str, Problem> {
    std::str::from_utf8(bytes).map_err(|_| Problem::invalid("the principal of the request is not UTF-8"))
}

/// Credentials are secret, so their hash names the principal.
fn hashed(credentials: &[u8]) -> String {
    let mut name = "authorization:".to_owned();
    for byte in digest::digest(&digest::SHA256, credentials).as_ref() {
        let _ = write!(name, "{byte:02x}");
    }
    name
}

#[cfg(test)]
mod tests {
    use axum::http::{Request, StatusCode};

    use super::*;

    fn found(scope: &RouteScope, headers: &[(&str, &str)]) -> Result<String, StatusCode> {
        let mut request = Request::builder();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        let granted = HeaderMap::from_iter([(HeaderName::from_static("x-account"), "account-7".parse().unwrap())]);
        parts.extensions.insert(Authorized(granted));
        let found = find_scope(scope, &parts).map(|scope| scope.to_string());
        found.map_err(|problem| problem.into_response().status())
    }

    #[test]
    fn scope_comes_from_one_header_only() {
        let hash = found(&RouteScope::Authorization, &[("authorization", "Bearer a")]).unwrap();
        assert!(hash.starts_with("authorization:") && !hash.contains("Bearer"), "{hash}");
        assert_ne!(Ok(hash), found(&RouteScope::Authorization, &[("authorization", "Bearer b")]));
        assert_eq!(found(&RouteScope::Authorization, &[]), Err(StatusCode::UNAUTHORIZED));
        let two = [("authorization", "Bearer a"), ("authorization", "Bearer b")];
        assert_eq!(found(&RouteScope::Authorization, &two), Err(StatusCode::BAD_REQUEST));
        let tenant = RouteScope::Header(HeaderName::from_static("x-tenant"));
        assert_eq!(found(&tenant, &[("x-tenant", "7")]), Ok("7".into()));
        for headers in [&[][..], &[("x-tenant", "")], &[("x-tenant", "*")], &[("x-tenant", "7"), ("x-tenant", "8")]] {
            assert_eq!(found(&tenant, headers), Err(StatusCode::BAD_REQUEST), "{headers:?}");
        }
        // A header of the request does not count.
        let account = RouteScope::Authorized(HeaderName::from_static("x-account"));
        assert_eq!(found(&account, &[("x-account", "account-8")]), Ok("account-7".into()));
        let other = RouteScope::Authorized(HeaderName::from_static("x-other"));
        assert_eq!(found(&other, &[("x-other", "1")]), Err(StatusCode::BAD_GATEWAY));
    }
}
