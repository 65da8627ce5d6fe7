//! The receiver of one subscription.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Request, Uri};
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use landfall::{ErrorCode, Failure, Message, Timestamp, Verdict};

use super::connector::{ConnectError, Connector};
use super::signature::SigningKey;
use super::{reply, request};
use crate::config::Subscription;

/// Tells the receiver that nothing must happen, in case both URLs lead to the same code.
const REHEARSAL: HeaderName = HeaderName::from_static("landfall-rehearsal");

/// Idle connections are closed after this time; the next connection resolves the host again.
const IDLE: Duration = Duration::from_secs(30);

pub(super) struct Endpoint {
    client: Client<Connector, Full<Bytes>>,
    url: Uri,
    rehearse_url: Option<Uri>,
    keys: Vec<SigningKey>,
}

impl Endpoint {
    pub(super) fn new(connector: Connector, subscription: &Subscription) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(subscription.concurrency)
            // The consumer decides about retries, not the connection pool.
            .retry_canceled_requests(false)
            .build(connector);
        let Subscription { url, rehearse_url, keys, .. } = subscription.clone();
        Self { client, url, rehearse_url, keys }
    }

    /// Posts the message once. `Ok` if the receiver responds with 2xx.
    pub(super) async fn post(&self, message: &Message) -> Result<(), Failure> {
        self.send(request::build(message, &self.url, &self.keys, Timestamp::now())?).await
    }

    /// Asks the receiver whether it would accept the message. It must not act on it.
    pub(super) async fn rehearse(&self, message: &Message) -> Result<(), Failure> {
        let Some(url) = &self.rehearse_url else {
            return Err(Failure::park(ErrorCode::VALIDATION, "the subscription has no rehearse_url"));
        };
        let mut request = request::build(message, url, &self.keys, Timestamp::now())?;
        request.headers_mut().insert(REHEARSAL, HeaderValue::from_static("true"));
        let refused = |failure: Failure| Failure { error: format!("rehearsal: {}", failure.error), ..failure };
        self.send(request).await.map_err(refused)
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<(), Failure> {
        let response = self.client.request(request).await.map_err(|error| failure_without_response(&error))?;
        reply::into_result(response).await
    }
}

impl fmt::Display for Endpoint {
    /// Formats the URL without its query and user information, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, authority) = (self.url.scheme_str().unwrap_or("http"), self.url.authority());
        let host = authority.map_or("", |authority| authority.as_str().rsplit('@').next().unwrap_or_default());
        write!(f, "{scheme}://{host}{}", self.url.path())
    }
}

/// Classifies a request without a response: it was not sent, or its outcome is unknown.
pub(crate) fn failure_without_response(error: &ClientError) -> Failure {
    let mut cause = error.source();
    while let Some(found) = cause {
        match found.downcast_ref::<ConnectError>() {
            Some(ConnectError::Refused(text)) => {
                return Failure::new(ErrorCode::new("ADDRESS_REFUSED"), text, Verdict::Retry);
            }
            Some(unbelieved @ ConnectError::Untrusted(_)) => {
                return Failure::new(ErrorCode::new("TLS_FAILED"), unbelieved, Verdict::Retry);
            }
            Some(failed) => return Failure::new(ErrorCode::DEPENDENCY, failed, Verdict::Retry),
            None => cause = found.source(),
        }
    }
    let detail = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    let error = format_args!("the connection was lost before the response{detail}");
    Failure::new(ErrorCode::UNKNOWN, error, Verdict::Retry)
}
