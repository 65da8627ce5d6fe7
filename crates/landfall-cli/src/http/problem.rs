//! Error responses: `application/problem+json` (RFC 9457).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use landfall::{ErrorKind, MessageId};
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
}

impl Problem {
    fn new(status: StatusCode, name: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self { status, name, title, detail: detail.into(), parts: None }
    }

    pub(super) fn with_parts(mut self, parts: serde_json::Value) -> Self {
        self.parts = Some(parts);
        self
    }

    pub(super) fn invalid(detail: impl Into<String>) -> Self {
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

    pub(super) fn two_ids() -> Self {
        let detail = "the field id and the header Idempotency-Key differ; they mean the same, so send one of them";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "two-ids", "The message has two ids", detail)
    }

    pub(super) fn unavailable(detail: impl Into<String>) -> Self {
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
        response
    }
}
