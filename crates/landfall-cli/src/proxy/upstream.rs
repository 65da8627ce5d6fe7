//! The service behind a route. A request is sent to it at most once, and its effect is never guessed.
//!
//! | what happens | answer | effect |
//! |---|---|---|
//! | no connection | 502 | nothing done: no byte was sent |
//! | connected, and no complete answer | 502, in time 504 | unknown |
//! | a complete answer | that answer | follows its status |
//!
//! Unsafe requests use a connection of their own. A kept one may be closed by the service while the request is under
//! way, and then its effect would be unknown.

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, Uri, Version, header};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use hyper::body::Body as _;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use landfall::idempotency::layer::{Effect, is_streamed};
use landfall::idempotency::{Identity, Snapshot};
use tokio::time::{Instant, timeout_at};
use tower_service::Service;

use super::headers;
use crate::config::IdempotentRoute;
use crate::http::problem::Problem;
use crate::push::connector::{ConnectError, Connector, HttpStream};

/// Idle connections are closed after this time; the next connection resolves the host again.
const IDLE: Duration = Duration::from_secs(30);
const MAX_IDLE_PER_HOST: usize = 16;

/// The longest time for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct Upstream {
    /// The base URL without its last slash.
    base: String,
    scheme: &'static str,
    business_type: String,
    timeout: Duration,
    connect_timeout: Duration,
    /// For safe requests.
    pooled: Client<BoundedConnector, Body>,
    /// For the others: a new connection each.
    fresh: Client<BoundedConnector, Body>,
}

impl Upstream {
    pub(super) fn new(connector: &Connector, route: &IdempotentRoute, scheme: &'static str) -> Self {
        let fresh = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .retry_canceled_requests(false)
            .build(BoundedConnector::new(connector, route.timeout));
        Self {
            base: route.upstream.to_string().trim_end_matches('/').to_owned(),
            scheme,
            business_type: route.business_type.clone(),
            timeout: route.timeout,
            connect_timeout: route.timeout.min(CONNECT_TIMEOUT),
            pooled: pooled(connector, route.timeout),
            fresh,
        }
    }

    /// Sends the request once. With a key, the answer is complete, or is streamed because it is too large to keep.
    pub(super) async fn forward(&self, request: Request) -> Response {
        let (parts, body) = request.into_parts();
        let has_key = parts.extensions.get::<Identity>().is_some();
        let client = if parts.method.is_safe() { &self.pooled } else { &self.fresh };
        let request = match self.outbound(&parts, body) {
            Ok(request) => request,
            Err(refusal) => return refusal.into_response(),
        };
        let deadline = Instant::now() + self.connect_timeout + self.timeout;
        let response = match timeout_at(deadline, client.request(request)).await {
            Err(_) => return self.failed(Failure::Slow),
            Ok(Err(error)) if error.is_connect() => return self.failed(Failure::NotSent(error)),
            Ok(Err(error)) => return self.failed(Failure::Broken(Box::new(error))),
            Ok(Ok(response)) => response,
        };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return self.failed(Failure::Broken("it answered 101, which was not asked for".into()));
        }
        let mut response = response.map(Body::new);
        headers::remove_hop_by_hop(response.headers_mut());
        if !has_key || is_streamed(response.headers()) {
            return response;
        }
        complete(response, deadline).await.unwrap_or_else(|failure| self.failed(failure))
    }

    fn outbound(&self, parts: &Parts, body: Body) -> Result<Request, Problem> {
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        let invalid = |_| Problem::invalid("the target of the request cannot be forwarded");
        let uri: Uri = format!("{}{target}", self.base).parse().map_err(invalid)?;
        // Without it some servers refuse a POST with 411. Other lengths are those of the body.
        let is_empty = body.size_hint().exact() == Some(0) && !parts.method.is_safe();
        let mut request = Request::new(body);
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = headers::forwarded(parts, self.scheme);
        if is_empty {
            request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        Ok(request)
    }

    fn failed(&self, failure: Failure) -> Response {
        let (problem, effect) = match &failure {
            Failure::NotSent(error) => {
                tracing::warn!(error = %cause(error), service = self.base, "service unreachable, nothing was sent");
                (Problem::bad_gateway("the service is unreachable; nothing was sent to it"), Effect::NothingDone)
            }
            Failure::Broken(error) => {
                tracing::warn!(error = %cause(&**error), service = self.base, self.business_type, "answer lost");
                let detail = "the connection to the service was lost before its answer; the request may have been done";
                (Problem::bad_gateway(detail), Effect::Unknown)
            }
            Failure::Slow => {
                let timeout_ms = self.timeout.as_millis() as u64;
                tracing::warn!(timeout_ms, service = self.base, self.business_type, "no answer in time");
                let detail = format!("the service did not answer within {timeout_ms} ms; the request may be done");
                (Problem::gateway_timeout(detail), Effect::Unknown)
            }
        };
        let mut response = problem.into_response();
        response.extensions_mut().insert(effect);
        response
    }
}

/// Why there is no complete answer.
enum Failure {
    NotSent(hyper_util::client::legacy::Error),
    Broken(Box<dyn std::error::Error + Send + Sync>),
    Slow,
}

/// Returns the innermost error: the outer ones only say that a request failed.
fn cause<'a>(error: &'a (dyn std::error::Error + 'static)) -> &'a (dyn std::error::Error + 'static) {
    std::iter::successors(Some(error), |error| error.source()).last().unwrap_or(error)
}

/// Reads a body to its end, or until it is too large to keep. What follows is streamed.
async fn complete(response: Response, deadline: Instant) -> Result<Response, Failure> {
    let (parts, body) = response.into_parts();
    let (mut rest, mut read) = (body.into_data_stream(), BytesMut::new());
    while read.len() <= Snapshot::MAX_BODY_BYTES {
        match timeout_at(deadline, rest.next()).await {
            Err(_) => return Err(Failure::Slow),
            Ok(Some(Err(error))) => return Err(Failure::Broken(Box::new(error))),
            Ok(Some(Ok(chunk))) => read.extend_from_slice(&chunk),
            Ok(None) => return Ok(Response::from_parts(parts, Body::from(read.freeze()))),
        }
    }
    let read: Result<Bytes, axum::Error> = Ok(read.freeze());
    Ok(Response::from_parts(parts, Body::from_stream(stream::iter([read]).chain(rest))))
}

/// Returns a client for safe requests, which keeps connections.
pub(super) fn pooled(connector: &Connector, timeout: Duration) -> Client<BoundedConnector, Body> {
    Client::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE)
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
        .build(BoundedConnector::new(connector, timeout))
}

/// Connects within a time limit of its own, so that a host that does not answer counts as not connected.
#[derive(Clone)]
pub(super) struct BoundedConnector {
    connector: Connector,
    timeout: Duration,
}

impl BoundedConnector {
    fn new(connector: &Connector, timeout: Duration) -> Self {
        Self { connector: connector.clone(), timeout: timeout.min(CONNECT_TIMEOUT) }
    }
}

impl Service<Uri> for BoundedConnector {
    type Response = HttpStream;
    type Error = ConnectError;
    type Future = BoxFuture<'static, Result<HttpStream, ConnectError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        self.connector.poll_ready(context)
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let (connecting, timeout) = (self.connector.call(url), self.timeout);
        Box::pin(async move {
            let late = |_| ConnectError::Failed(io::Error::new(io::ErrorKind::TimedOut, "no connection in time"));
            tokio::time::timeout(timeout, connecting).await.map_err(late)?
        })
    }
}
