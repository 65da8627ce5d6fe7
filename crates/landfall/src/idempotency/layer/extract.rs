//! The rules of the layer for handlers that keep the record in their own transaction.

use axum_core::extract::{FromRequest, Request};
use axum_core::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderValue, header};
use landfall_core::idempotency::{Fingerprint, Identity, Scope};

use super::super::engine::Answer;
use super::super::error::Error;
use super::answer::mark_replayed;
use super::key::{self, IDEMPOTENCY_KEY};
use super::problem;

/// A request with `Idempotency-Key`, for handlers that use [`InTransaction`](crate::idempotency::InTransaction) instead
/// of [`IdempotencyLayer`](super::IdempotencyLayer). Key and fingerprint follow the same rules.
///
/// The extractor refuses a request without a valid key with 400. Answers and errors of the work implement
/// [`IntoResponse`], and [`respond`](Self::respond) adds the key to a replay.
///
/// ```
/// use axum_core::response::Response;
/// use http::StatusCode;
/// use landfall::idempotency::layer::KeyedRequest;
/// use landfall::idempotency::{InTransaction, Scope};
/// use landfall::sqlite::Sqlite;
///
/// // Axum's `State` and an extractor of the authenticated caller precede the request.
/// async fn place(orders: InTransaction<Sqlite>, scope: Scope, request: KeyedRequest) -> Result<Response, Response> {
///     let identity = request.identity(scope, "order")?;
///     let placed = orders
///         .run(&identity, request.fingerprint(), async |connection| {
///             sqlx::query("INSERT INTO orders DEFAULT VALUES").execute(connection).await?;
///             Ok::<_, sqlx::Error>("placed".to_owned())
///         })
///         .await
///         .map(|answer| answer.map(|text| (StatusCode::CREATED, text)))
///         .map_err(|error| error.map_work(|_| StatusCode::INTERNAL_SERVER_ERROR));
///     Ok(request.respond(placed))
/// }
/// ```
#[derive(Debug, Clone)]
pub struct KeyedRequest {
    key: String,
    header: HeaderValue,
    fingerprint: Fingerprint,
    body: Bytes,
}

impl KeyedRequest {
    /// Returns the key without its quotes.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the fingerprint of method, path, query, media type, content encoding and body.
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Returns the identity of the key for an authenticated caller, or the response that refuses it.
    pub fn identity(&self, scope: Scope, business_type: &str) -> Result<Identity, Response> {
        Identity::new(scope, business_type, self.key.clone()).map_err(|error| problem::invalid(&error.to_string()))
    }

    /// Returns the response of the work, with the key if it is a replay.
    pub fn respond<T: IntoResponse, E: IntoResponse>(&self, ended: Result<Answer<T>, Error<E>>) -> Response {
        let is_replayed = ended.as_ref().is_ok_and(|answer| answer.is_replayed);
        let mut response = ended.map_or_else(IntoResponse::into_response, IntoResponse::into_response);
        if is_replayed {
            response.headers_mut().insert(IDEMPOTENCY_KEY, self.header.clone());
        }
        response
    }
}

impl<S: Send + Sync> FromRequest<S> for KeyedRequest {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let (parts, body) = request.into_parts();
        let missing =
            || problem::invalid("this request needs the header Idempotency-Key; send the same one in a retry");
        let key = key::parse(key::single(&parts.headers, &IDEMPOTENCY_KEY)?.ok_or_else(missing)?)?;
        let header = parts.headers.get(IDEMPOTENCY_KEY).cloned().ok_or_else(missing)?;
        // Under the body limit of the router.
        let body = Request::from_parts(parts.clone(), body);
        let body = Bytes::from_request(body, state).await.map_err(IntoResponse::into_response)?;
        Ok(Self { key, header, fingerprint: key::fingerprint(&parts, &body), body })
    }
}

/// Marks a replay with `Idempotent-Replayed: true` and `Cache-Control: no-store`, and removes its cookies.
impl<T: IntoResponse> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        let mut response = self.value.into_response();
        if self.is_replayed {
            let headers = response.headers_mut();
            for name in [header::SET_COOKIE, header::WWW_AUTHENTICATE] {
                headers.remove(name);
            }
            mark_replayed(headers);
        }
        response
    }
}

/// Refuses with problem+json, as the layer does. An error of the work responds by itself.
impl<E: IntoResponse> IntoResponse for Error<E> {
    fn into_response(self) -> Response {
        match self {
            Self::Work(error) => error.into_response(),
            refused => problem::refusal(&refused),
        }
    }
}
