//! A tower layer for axum: `Idempotency-Key` and `Idempotent-Token` for the handlers below it.
//!
//! ```text
//!   authentication ─▶ IdempotencyLayer ─▶ key, scope, fingerprint ─▶ Idempotency::run ─▶ handler
//!                                                                       └ repeat: the stored answer
//! ```
//!
//! Put it inside authentication: a replay is as secret as the resource, so a caller without permission must not get
//! this far.
#![allow(clippy::result_large_err, reason = "the error is the response itself")]

mod answer;
mod extract;
mod key;
mod problem;

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum_core::body::Body;
use axum_core::extract::Request;
use axum_core::response::Response;
use http::request::Parts;
use http::{HeaderName, Method, header};
use landfall_core::idempotency::{Identity, Scope, Token};
use tower_layer::Layer;
use tower_service::Service;

use super::engine::{Answer, Codec, Idempotency, Policy};
use super::error::Error;
use answer::Answered;

pub use answer::{Effect, is_streamed};
pub use extract::KeyedRequest;
pub use key::{IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED, IDEMPOTENT_TOKEN};

/// Returns the scope of an authenticated request, or the response that refuses it.
type FindScope = dyn Fn(&Parts) -> Result<Scope, Response> + Send + Sync;

/// Returns the business id of a token, such as the last segment of the path.
type FindBusinessId = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// Makes the handlers below it idempotent.
///
/// * Safe methods, and requests without a key unless it is [required](Self::require_key), pass through.
/// * The fingerprint covers method, path, query, media type, content encoding and body. Another request under a used
///   key is refused with 422.
/// * The handler runs in a task of its own: a client that disconnects does not stop it.
/// * 2xx, 3xx and 4xx answers are stored and replayed with `Idempotent-Replayed: true`. Requests that were refused
///   before any work free the key: 400, 401, 403, 405, 406, 408, 411, 413–415, 421, 425, 426, 428, 429, 431.
///   After 5xx the outcome is unknown, and the policy decides. A handler that knows better adds an [`Effect`] to the
///   extensions of its response.
/// * Only the headers of an allow-list are stored, never `Set-Cookie`. A body over 256 KiB and an event stream
///   are not kept: their repeat gets 409 with the stored `Location`.
///
/// Handlers find [`Identity`] and [`Attempt`](super::Attempt) in the extensions of the request.
#[derive(Clone)]
pub struct IdempotencyLayer {
    engine: Idempotency,
    rules: Arc<Rules>,
}

#[derive(Clone)]
struct Rules {
    business_type: String,
    policy: Policy,
    scope: Arc<FindScope>,
    business_id: Option<Arc<FindBusinessId>>,
    is_required: bool,
    body_limit: usize,
    kept_headers: Vec<HeaderName>,
}

impl IdempotencyLayer {
    /// Runs the handlers below it under `policy`. `scope` returns whose keys a request uses, from what authentication
    /// has left in its extensions.
    pub fn new(
        engine: Idempotency,
        business_type: impl Into<String>,
        policy: Policy,
        scope: impl Fn(&Parts) -> Result<Scope, Response> + Send + Sync + 'static,
    ) -> Self {
        let rules = Rules {
            business_type: business_type.into(),
            policy,
            scope: Arc::new(scope),
            business_id: None,
            is_required: false,
            body_limit: 1024 * 1024,
            kept_headers: vec![
                header::CONTENT_TYPE,
                header::CONTENT_LANGUAGE,
                header::CONTENT_LOCATION,
                header::LOCATION,
                header::ETAG,
                header::LINK,
            ],
        };
        Self { engine, rules: Arc::new(rules) }
    }

    /// Refuses unsafe requests without a key with 400.
    #[must_use]
    pub fn require_key(self) -> Self {
        self.with(|rules| rules.is_required = true)
    }

    /// Accepts one-time tokens in the header `Idempotent-Token`, for the business id that a request is about.
    #[must_use]
    pub fn accept_tokens(self, business_id: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        self.with(|rules| rules.business_id = Some(Arc::new(business_id)))
    }

    /// Sets the largest body of a request, which is read before the handler runs; 1 MiB by default.
    #[must_use]
    pub fn with_body_limit(self, bytes: usize) -> Self {
        self.with(|rules| rules.body_limit = bytes)
    }

    /// Stores one more header of answers. `Set-Cookie` and headers of the connection are never stored.
    #[must_use]
    pub fn keep_header(self, name: HeaderName) -> Self {
        self.with(|rules| {
            if !answer::NEVER_KEPT.contains(&name) {
                rules.kept_headers.push(name);
            }
        })
    }

    /// Changes the rules of this layer, and not of its clones.
    fn with(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        change(Arc::make_mut(&mut self.rules));
        self
    }
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rules { business_type, policy, .. } = &*self.rules;
        f.debug_struct("IdempotencyLayer")
            .field("business_type", business_type)
            .field("policy", policy)
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService { inner, layer: self.clone() }
    }
}

/// The service of an [`IdempotencyLayer`].
#[derive(Debug, Clone)]
pub struct IdempotencyService<S> {
    inner: S,
    layer: IdempotencyLayer,
}

impl<S> Service<Request> for IdempotencyService<S>
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        // The clone takes the place of the service that is ready.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        let layer = self.layer.clone();
        Box::pin(async move { Ok(layer.handle(inner, request).await.unwrap_or_else(|refusal| refusal)) })
    }
}

/// What a request asks for.
enum Asked {
    /// Nothing of this layer.
    PassThrough,
    Once(Identity),
}

impl IdempotencyLayer {
    async fn handle<S>(self, mut inner: S, request: Request) -> Result<Response, Response>
    where
        S: Service<Request, Response = Response, Error = Infallible> + Send + 'static,
        S::Future: Send + 'static,
    {
        let (parts, body) = request.into_parts();
        let identity = match self.rules.asked(&parts)? {
            Asked::Once(identity) => identity,
            Asked::PassThrough => {
                let Ok(response) = inner.call(Request::from_parts(parts, body)).await;
                return Ok(response);
            }
        };
        let body = key::read(body, self.rules.body_limit).await?;
        let fingerprint = key::fingerprint(&parts, &body);
        let echoed = parts.headers.get(IDEMPOTENCY_KEY).cloned();
        let (rules, id) = (self.rules.clone(), identity.clone());
        let work = async move |attempt| {
            let mut request = Request::from_parts(parts, Body::from(body));
            request.extensions_mut().insert(id);
            request.extensions_mut().insert(attempt);
            let Ok(response) = inner.call(request).await;
            answer::classify(response, &rules.kept_headers).await
        };
        let codec = Codec { encode: Answered::snapshot, decode: Answered::replayed };
        let policy = &self.rules.policy;
        let ended: Result<Answer<Answered>, Error<Response>> =
            self.engine.execute(&identity, &fingerprint, policy, codec, work).await;
        match ended {
            Ok(Answer { value, .. }) => Ok(value.into_response(echoed)),
            Err(Error::Work(response)) => Ok(response),
            Err(error) => Err(problem::refusal(&error)),
        }
    }
}

impl Rules {
    fn asked(&self, parts: &Parts) -> Result<Asked, Response> {
        if matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE) {
            return Ok(Asked::PassThrough);
        }
        let key = key::single(&parts.headers, &IDEMPOTENCY_KEY)?.map(key::parse).transpose()?;
        let token = match &self.business_id {
            Some(business_id) => key::single(&parts.headers, &IDEMPOTENT_TOKEN)?.map(|token| (token, business_id)),
            None => None,
        };
        match (key, token) {
            (Some(_), Some(_)) => Err(problem::invalid("send Idempotency-Key or Idempotent-Token, not both")),
            (Some(key), None) => {
                let scope = (self.scope)(parts)?;
                let identity = Identity::new(scope, self.business_type.clone(), key);
                Ok(Asked::Once(identity.map_err(|error| problem::invalid(&error.to_string()))?))
            }
            (None, Some((token, business_id))) => {
                let scope = (self.scope)(parts)?;
                // A token of another form was never issued.
                let token: Token = token.parse().map_err(|_| problem::refusal(&Error::<Response>::NotIssued))?;
                let business_id = business_id(parts).ok_or_else(|| problem::refusal(&Error::<Response>::NotIssued))?;
                let identity = token.identity(scope, &self.business_type, &business_id);
                Ok(Asked::Once(identity.map_err(|error| problem::invalid(&error.to_string()))?))
            }
            (None, None) if self.is_required => {
                Err(problem::invalid("this request needs the header Idempotency-Key; send the same one in a retry"))
            }
            (None, None) => Ok(Asked::PassThrough),
        }
    }
}
