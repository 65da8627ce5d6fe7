//! Error responses: `application/problem+json` (RFC 9457).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use landfall::{DeadLetterId, DeadLetterStatus, ErrorKind, HalfState, MessageId};
use serde_json::json;

/// An error response: a status, a type that programs compare, and a sentence for a person.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    name: &'static str,
    title: &'static str,
    detail: String,
    /// The state of each part of the daemon, for `/readyz`.
    parts: Option<serde_json::Value>,
    /// `Retry-After` in seconds.
    retry_after: Option<u64>,
}

/// What a problem says, kept in its response for gRPC and for the console, which have other forms for it.
#[derive(Debug, Clone)]
pub(super) struct Raised {
    pub(super) status: StatusCode,
    #[cfg_attr(not(feature = "grpc"), expect(dead_code, reason = "only gRPC sends it"))]
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) detail: String,
}

impl Problem {
    pub(super) fn raised(&self) -> Raised {
        Raised { status: self.status, name: self.name, title: self.title, detail: self.detail.clone() }
    }

    fn new(status: StatusCode, name: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self { status, name, title, detail: detail.into(), parts: None, retry_after: None }
    }

    pub(super) fn with_parts(mut self, parts: serde_json::Value) -> Self {
        self.parts = Some(parts);
        self
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid-request", "The request is not valid", detail)
    }

    pub(super) fn unauthorized() -> Self {
        let detail = "send a token configured under [auth] as `Authorization: Bearer TOKEN`";
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "A token is needed", detail)
    }

    pub(super) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", "This is not allowed", detail)
    }

    pub(super) fn not_found(path: &str) -> Self {
        let detail = format!("no route {path:?}; /openapi.json lists the routes");
        Self::new(StatusCode::NOT_FOUND, "not-found", "There is nothing here", detail)
    }

    /// For a request that no `[[idempotent_route]]` takes.
    pub(crate) fn not_routed(method: &str, path: &str) -> Self {
        let detail = format!("no [[idempotent_route]] takes {method} {path:?}; nothing was forwarded");
        Self::new(StatusCode::NOT_FOUND, "not-found", "There is nothing here", detail)
    }

    /// For a request whose principal is its `Authorization`.
    pub(crate) fn no_credentials() -> Self {
        let detail = "a request with Idempotency-Key needs Authorization, which names its principal";
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "Credentials are needed", detail)
    }

    pub(crate) fn bad_gateway(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "bad-gateway", "The service did not answer", detail)
    }

    pub(crate) fn gateway_timeout(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "gateway-timeout", "The service did not answer in time", detail)
    }

    pub(super) fn method_not_allowed(method: &str, path: &str) -> Self {
        let detail = format!("{path} does not support {method}; /openapi.json lists the methods");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "The method is not allowed", detail)
    }

    pub(super) fn request_timeout(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "request-timeout", "The request took too long to arrive", detail)
    }

    pub(super) fn too_large(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "The message is too large", detail)
    }

    pub(super) fn different_message(id: MessageId) -> Self {
        let detail = format!("another message was sent under the id {id}; a retry must have an equal body");
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "different-message", "The id belongs to another message", detail)
    }

    pub(super) fn other_verdict(id: MessageId, first: HalfState) -> Self {
        let detail = format!("half message {id} is {} already, and the first verdict is final", first.as_str());
        Self::new(StatusCode::CONFLICT, "other-verdict", "The opposite was decided before", detail)
    }

    pub(super) fn no_half_message(id: MessageId) -> Self {
        let detail = format!("no half message has the id {id}; it may have been decided and removed");
        Self::new(StatusCode::NOT_FOUND, "not-found", "It does not exist", detail)
    }

    pub(super) fn no_dead_letter(id: DeadLetterId) -> Self {
        let detail = format!("there is no dead letter {id}; it may have been done and removed");
        Self::new(StatusCode::NOT_FOUND, "not-found", "It does not exist", detail)
    }

    pub(super) fn letter_not_parked(id: DeadLetterId, status: DeadLetterStatus) -> Self {
        let detail = format!("dead letter {id} is {}, and only a parked one is redriven", status.as_str());
        Self::new(StatusCode::CONFLICT, "conflict", "Its state does not allow this", detail)
    }

    /// For a person who looked at something that has changed since.
    pub(super) fn changed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", "It has changed in the meantime", detail)
    }

    pub(super) fn letter_too_old(id: DeadLetterId) -> Self {
        let detail = format!(
            "dead letter {id} is older than retention.dead_letters, so a duplicate of it may have been handled and \
             forgotten; `landfall dlq redrive --id {id} --older-than-retention` redrives it anyway"
        );
        Self::new(StatusCode::CONFLICT, "too-old", "Its state does not allow this", detail)
    }

    pub(super) fn no_redrive(id: MessageId) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", "It does not exist", format!("there is no redrive {id}"))
    }

    pub(super) fn different_redrive(id: MessageId) -> Self {
        let detail = format!("another redrive was started under the id {id}; a retry must have an equal body");
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "different-redrive", "The id belongs to another redrive", detail)
    }

    pub(super) fn two_ids() -> Self {
        let detail = "the field id and the header Idempotency-Key differ; they mean the same, so send one of them";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "two-ids", "The message has two ids", detail)
    }

    pub(super) fn in_flight(detail: impl Into<String>, retry_after: u64) -> Self {
        let title = "Another attempt with this key is running";
        Self { retry_after: Some(retry_after), ..Self::new(StatusCode::CONFLICT, "in-flight", title, detail) }
    }

    pub(super) fn different_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "different-request", "The key belongs to another request", detail)
    }

    pub(super) fn uncertain(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "uncertain", "The outcome of an earlier attempt is unknown", detail)
    }

    /// For work that is done and whose answer is not available: `result-not-kept` or `result-expired`.
    pub(super) fn answer_gone(name: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, name, "It was done, and its answer is gone", detail)
    }

    pub(super) fn lease_lost(epoch: i64) -> Self {
        let detail = format!("the attempt with epoch {epoch} does not hold this key any more; nothing was written");
        Self::new(StatusCode::CONFLICT, "lease-lost", "The lease is lost", detail)
    }

    /// For a token that cannot be consumed: `token-used` or `token-invalid`.
    pub(super) fn token(name: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, name, "The token cannot be consumed", detail)
    }

    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "Not available right now", detail)
    }
}

impl From<landfall::Error> for Problem {
    fn from(error: landfall::Error) -> Self {
        let detail = error.to_string();
        match error.kind() {
            ErrorKind::Invalid | ErrorKind::Unsupported => Self::invalid(detail),
            ErrorKind::NotFound => Self::new(StatusCode::NOT_FOUND, "not-found", "It does not exist", detail),
            ErrorKind::Conflict => Self::new(StatusCode::CONFLICT, "conflict", "Its state does not allow this", detail),
            ErrorKind::Unavailable | ErrorKind::InUse | ErrorKind::Schema => Self::unavailable(detail),
            // The commit may have succeeded, so the client must check before it sends again.
            ErrorKind::Unknown => {
                Self::new(StatusCode::GATEWAY_TIMEOUT, "outcome-unknown", "It may or may not have happened", detail)
            }
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "Something is broken", detail),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let raised = self.raised();
        let mut body = json!({
            "type": format!("urn:landfall:problem:{}", self.name),
            "title": self.title,
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        if let Some(parts) = self.parts {
            body["parts"] = parts;
        }
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        let mut response = (self.status, kind, body.to_string()).into_response();
        let more = match self.status {
            StatusCode::UNAUTHORIZED => Some((header::WWW_AUTHENTICATE, "Bearer")),
            StatusCode::SERVICE_UNAVAILABLE => Some((header::RETRY_AFTER, "1")),
            _ => None,
        };
        if let Some((name, value)) = more {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response.extensions_mut().insert(raised);
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
