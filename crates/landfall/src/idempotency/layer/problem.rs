//! Refusals: `application/problem+json` (RFC 9457).

use axum_core::body::Body;
use axum_core::response::Response;
use http::{HeaderValue, StatusCode, header};
use landfall_core::ErrorKind;
use serde_json::json;

use super::super::error::Error;

fn problem(status: StatusCode, name: &str, detail: &str) -> Response {
    let body = json!({
        "type": format!("urn:landfall:problem:{name}"),
        "title": status.canonical_reason().unwrap_or_default(),
        "status": status.as_u16(),
        "detail": detail,
    });
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}

pub(super) fn invalid(detail: &str) -> Response {
    problem(StatusCode::BAD_REQUEST, "invalid-request", detail)
}

pub(super) fn too_large(limit: usize) -> Response {
    let detail = format!("the body has more than {limit} bytes, which is the limit");
    problem(StatusCode::PAYLOAD_TOO_LARGE, "too-large", &detail)
}

/// For work that is done and whose answer is not available.
pub(super) fn gone(name: &str, status: u16, location: Option<&str>) -> Response {
    let detail = format!("this was done with status {status}, and its answer is not kept");
    let mut response = problem(StatusCode::CONFLICT, name, &detail);
    if let Some(location) = location.and_then(|location| HeaderValue::from_str(location).ok()) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// Translates a refusal of the engine.
pub(super) fn refusal<E>(error: &Error<E>) -> Response {
    let (status, name, retry_after) = match error {
        Error::InFlight { retry_after } => (StatusCode::CONFLICT, "in-flight", Some(retry_after.as_secs().max(1))),
        Error::Mismatch => (StatusCode::UNPROCESSABLE_ENTITY, "different-request", None),
        Error::Uncertain => (StatusCode::CONFLICT, "uncertain", None),
        Error::NotKept { is_expired: true, .. } => (StatusCode::CONFLICT, "result-expired", None),
        Error::NotKept { .. } => (StatusCode::CONFLICT, "result-not-kept", None),
        Error::NotIssued => (StatusCode::CONFLICT, "token-invalid", None),
        Error::Fenced => (StatusCode::CONFLICT, "lease-lost", Some(1)),
        // Not a matter of time, such as a lease that is longer than its ceiling.
        Error::Store(error) if error.kind() == ErrorKind::Invalid => {
            (StatusCode::INTERNAL_SERVER_ERROR, "internal", None)
        }
        Error::Store(_) | Error::Unconfirmed(_) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable", Some(1)),
        Error::Aborted | Error::Value(_) | Error::Work(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal", None),
    };
    // What failed inside is for the log.
    if let Error::Store(reason) | Error::Unconfirmed(reason) | Error::Value(reason) = error {
        tracing::error!(error = %reason, kind = name, "idempotent request failed");
    }
    let detail = match error {
        Error::Work(_) | Error::Aborted => "the request was aborted",
        error => error.sentence(),
    };
    let mut response = problem(status, name, detail);
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
