//! The receiver of one subscription.

use std::error::Error as _;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Uri;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use landfall::{ErrorCode, Failure, Message, Timestamp, Verdict};

use super::connector::{ConnectError, Connector};
use super::signature::SigningKey;
use super::{reply, request};
use crate::config::Subscription;

/// An idle connection is closed after this, and the host's name is looked up again with the next one.
const IDLE: Duration = Duration::from_secs(30);

pub(super) struct Endpoint {
    client: Client<Connector, Full<Bytes>>,
    url: Uri,
    keys: Vec<SigningKey>,
}

impl Endpoint {
    pub(super) fn new(connector: Connector, subscription: &Subscription) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(subscription.concurrency)
            // Whether to send something again is not for the connection to decide.
            .retry_canceled_requests(false)
            .build(connector);
        Self { client, url: subscription.url.clone(), keys: subscription.keys.clone() }
    }

    /// Posts it once. `Ok` if the receiver says that it is done.
    pub(super) async fn post(&self, message: &Message) -> Result<(), Failure> {
        let request = request::of(message, &self.url, &self.keys, Timestamp::now())?;
        let response = self.client.request(request).await.map_err(|error| unanswered(&error))?;
        reply::judge(response).await
    }
}

/// There is no answer: nothing was sent, or nobody knows what became of it.
fn unanswered(error: &ClientError) -> Failure {
    let mut cause = error.source();
    while let Some(found) = cause {
        match found.downcast_ref::<ConnectError>() {
            Some(ConnectError::Refused(sentence)) => {
                return Failure::new(ErrorCode::new("ADDRESS_REFUSED"), sentence, Verdict::Retry);
            }
            Some(unbelieved @ ConnectError::Unbelieved(_)) => {
                return Failure::new(ErrorCode::new("TLS_FAILED"), unbelieved, Verdict::Retry);
            }
            Some(failed) => return Failure::new(ErrorCode::DEPENDENCY, failed, Verdict::Retry),
            None => cause = found.source(),
        }
    }
    let detail = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    Failure::new(ErrorCode::UNKNOWN, format_args!("the connection broke before the answer{detail}"), Verdict::Retry)
}
