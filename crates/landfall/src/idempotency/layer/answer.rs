//! Responses: what is stored of one, and what a repeat gets.

use axum_core::body::Body;
use axum_core::response::Response;
use bytes::BytesMut;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use landfall_core::Result;
use landfall_core::idempotency::{self as core, Snapshot};

use super::super::engine::{Undecoded, Work};
use super::key::{IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED};
use super::problem;

/// What the work behind a response did, for handlers that know better than its status. Add it to the extensions of the
/// response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The response is final; a repeat gets it.
    Done,
    /// Nothing happened, or all of it was rolled back. A repeat runs.
    NothingDone,
    /// It may have happened; the policy decides about a repeat.
    Unknown,
}

/// Headers that belong to a session or a connection, and are in no replay.
pub(super) const NEVER_KEPT: [HeaderName; 8] = [
    header::SET_COOKIE,
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::CONTENT_LENGTH,
    header::DATE,
    header::UPGRADE,
    header::TRAILER,
    header::WWW_AUTHENTICATE,
];

/// A final response, and what is stored of it.
pub(super) struct Answered {
    response: Response,
    snapshot: Snapshot,
    is_replayed: bool,
}

impl Answered {
    pub(super) fn snapshot(&self) -> Result<Snapshot> {
        Ok(self.snapshot.clone())
    }

    pub(super) fn replayed(snapshot: Snapshot) -> std::result::Result<Self, Undecoded> {
        Ok(Self { response: replay(&snapshot), snapshot, is_replayed: true })
    }

    pub(super) fn into_response(self, key: Option<HeaderValue>) -> Response {
        let mut response = self.response;
        if self.is_replayed {
            mark_replayed(response.headers_mut());
            if let Some(key) = key {
                response.headers_mut().insert(IDEMPOTENCY_KEY, key);
            }
        }
        response
    }
}

pub(super) fn mark_replayed(headers: &mut HeaderMap) {
    headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

fn replay(snapshot: &Snapshot) -> Response {
    let location = snapshot.headers.iter().find(|(name, _)| name == "location").map(|(_, value)| value.as_str());
    let body = match &snapshot.body {
        core::Body::Kept(bytes) => bytes.clone(),
        core::Body::NotKept => return problem::gone("result-not-kept", snapshot.status, location),
        core::Body::Expired => return problem::gone("result-expired", snapshot.status, location),
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(snapshot.status).unwrap_or(StatusCode::OK);
    for (name, value) in &snapshot.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

/// Decides what a response says about its work, and reads what is stored of it.
pub(super) async fn classify(response: Response, kept: &[HeaderName]) -> Work<Answered, Response> {
    let effect = response.extensions().get::<Effect>().copied().unwrap_or_else(|| effect(response.status()));
    match effect {
        Effect::Done => Work::Done(answered(response, kept).await),
        Effect::NothingDone => Work::NothingDone(response),
        Effect::Unknown => Work::Unknown(response),
    }
}

/// The effect that a status implies. Statuses of requests that are refused before any work mean that nothing is done.
fn effect(status: StatusCode) -> Effect {
    match status.as_u16() {
        400 | 401 | 403 | 405 | 406 | 408 | 411 | 413..=415 | 421 | 425 | 426 | 428 | 429 | 431 => Effect::NothingDone,
        500.. => Effect::Unknown,
        _ => Effect::Done,
    }
}

/// Returns whether the body of an answer is passed on as it arrives, and is not kept: an event stream, which may never
/// end, or one that is known to be too large.
pub fn is_streamed(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let kind = text(header::CONTENT_TYPE).and_then(|kind| kind.split(';').next()).unwrap_or_default();
    let length = text(header::CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    kind.trim().eq_ignore_ascii_case("text/event-stream")
        || length.is_some_and(|length| length > Snapshot::MAX_BODY_BYTES as u64)
}

/// Reads a body of up to the limit. A larger one, or one that breaks off, is passed on and not kept.
async fn answered(response: Response, kept: &[HeaderName]) -> Answered {
    let (parts, body) = response.into_parts();
    let (status, headers) = (parts.status.as_u16(), kept_headers(&parts.headers, kept));
    if is_streamed(&parts.headers) {
        let snapshot = Snapshot { status, headers, body: core::Body::NotKept };
        return Answered { response: Response::from_parts(parts, body), snapshot, is_replayed: false };
    }
    let (mut rest, mut read) = (body.into_data_stream(), BytesMut::new());
    let end = loop {
        match rest.next().await {
            None => break None,
            Some(Ok(chunk)) => read.extend_from_slice(&chunk),
            Some(Err(error)) => break Some(Err(error)),
        }
        if read.len() > Snapshot::MAX_BODY_BYTES {
            break Some(Ok(bytes::Bytes::new()));
        }
    };
    let read = read.freeze();
    let (snapshot, body) = match end {
        None => (Snapshot::new(status, headers, read.clone()), Body::from(read)),
        Some(last) => {
            let snapshot = Snapshot { status, headers, body: core::Body::NotKept };
            (snapshot, Body::from_stream(stream::iter([Ok(read), last]).chain(rest)))
        }
    };
    Answered { response: Response::from_parts(parts, body), snapshot, is_replayed: false }
}

fn kept_headers(headers: &HeaderMap, kept: &[HeaderName]) -> Vec<(String, String)> {
    let pairs = kept.iter().flat_map(|name| headers.get_all(name).iter().map(move |value| (name, value)));
    pairs.filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned()))).collect()
}
