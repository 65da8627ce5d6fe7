//! The sub-request of `authorize`: asks whether a caller may do what it asks for, also before a replay.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Limited};
use hyper_util::client::legacy::Client;

use super::headers;
use super::upstream::{BoundedConnector, pooled};
use crate::http::problem::Problem;
use crate::push::connector::Connector;

const ORIGINAL_METHOD: HeaderName = HeaderName::from_static("x-original-method");
const ORIGINAL_URI: HeaderName = HeaderName::from_static("x-original-uri");

/// A refusal is passed on up to this size.
const MAX_REFUSAL_BYTES: usize = 64 * 1024;

/// The headers of a permission, in the extensions of the request.
#[derive(Debug, Clone)]
pub(super) struct Authorized(pub(super) HeaderMap);

pub(super) struct Authorizer {
    client: Client<BoundedConnector, Body>,
    url: Uri,
    timeout: Duration,
}

impl Authorizer {
    pub(super) fn new(connector: &Connector, url: Uri, timeout: Duration) -> Self {
        Self { client: pooled(connector, timeout), url, timeout }
    }

    /// Returns the headers of a permission, or the refusal.
    async fn ask(&self, parts: &Parts) -> Result<HeaderMap, Response> {
        let answer = tokio::time::timeout(self.timeout, async {
            let response = self.client.request(self.question(parts)).await.map_err(|error| format!("{error:?}"))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_REFUSAL_BYTES).collect().await.map_err(|error| error.to_string())?;
            Ok((head, body.to_bytes()))
        });
        let why = match answer.await {
            Ok(Ok((head, _))) if head.status.is_success() => return Ok(head.headers),
            Ok(Ok((head, body))) if matches!(head.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                let mut refusal = (head.status, body).into_response();
                for name in [header::CONTENT_TYPE, header::WWW_AUTHENTICATE] {
                    refusal.headers_mut().remove(&name);
                    refusal.headers_mut().extend(head.headers.get(&name).map(|value| (name, value.clone())));
                }
                return Err(refusal);
            }
            Ok(Ok((head, _))) => format!("it answered {}", head.status),
            Ok(Err(why)) => why,
            Err(_) => format!("it did not answer within {} ms", self.timeout.as_millis()),
        };
        tracing::warn!(host = self.url.host(), why, "authorize of an idempotent route failed, refusing");
        Err(Problem::unavailable("the permission could not be checked; nothing was forwarded").into_response())
    }

    fn question(&self, parts: &Parts) -> axum::http::Request<Body> {
        let mut request = axum::http::Request::new(Body::empty());
        *request.uri_mut() = self.url.clone();
        let headers = request.headers_mut();
        for name in [header::AUTHORIZATION, header::COOKIE] {
            for value in parts.headers.get_all(&name) {
                headers.append(&name, value.clone());
            }
        }
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        for (name, value) in [(ORIGINAL_METHOD, parts.method.as_str()), (ORIGINAL_URI, target)] {
            headers.extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
        }
        headers::append_peer(headers, parts);
        request
    }
}

pub(super) async fn check(State(authorizer): State<Arc<Authorizer>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match authorizer.ask(&parts).await {
        Ok(headers) => {
            parts.extensions.insert(Authorized(headers));
            next.run(Request::from_parts(parts, body)).await
        }
        Err(refusal) => refusal,
    }
}
