//! The role `push`: each `[[subscription]]` is a consumer whose effect is an HTTP POST.
//!
//! ```text
//!   delivery ─▶ new? ─▶ POST ─▶ 2xx ─▶ inbox row ─▶ acknowledge
//!                         │ 429, 5xx, timeout: retried, its key waits; parked after the last attempt
//!                         │ 503, no connection: retried, counts as no attempt
//!                         │ other 4xx: parked at once
//!                         └ breaker open, budget empty: waits, counts as no attempt
//!
//! A redriven message takes nothing from the retry budget on its first attempt: `redrive_concurrency` limits a redrive.
//! ```
//!
//! The receiver sees each message at least once, in order per key. After a crash between its response and the inbox row
//! it sees the same `Idempotency-Key` again.
//!
//! * [`address`] decides which addresses are allowed, [`connector`] connects only to those;
//! * [`request`] builds the request, [`signature`] signs it, [`reply`] interprets the response;
//! * [`inbox`] keeps no transaction open during the call.

mod address;
mod certificates;
pub(crate) mod connector;
mod endpoint;
pub(crate) mod inbox;
mod reply;
mod request;
pub(crate) mod signature;

use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use landfall::adapter::DatabaseCapabilities;
use landfall::consume::{self, Consumer, Context, Handler};
use landfall::retry::{Dependency, Jitter, Options, Repeat, RetryPolicy};
use landfall::{Broker, Failure, Inbox, OutboxWriter, Rehearsals};
use tokio_util::sync::CancellationToken;

use crate::config::{Push, Subscription};
use crate::error::{Error, Result};
use connector::Connector;
use endpoint::Endpoint;
use inbox::DeferredInbox;

pub(crate) use address::Rules;
pub(crate) use endpoint::failure_without_response;
pub(crate) use reply::{LONGEST_RETRY_AFTER, beginning, excerpt, retry_after};
pub(crate) use signature::SigningKey;

/// Time limit of a [`probe`].
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects to the receiver under the rules of `[push]`, and sends nothing. Returns why no connection was made.
pub(crate) async fn probe(push: &Push, url: &Uri) -> Result<Option<String>> {
    let connecting = Connector::new(push)?.connect(url.clone());
    Ok(match tokio::time::timeout(PROBE_TIMEOUT, connecting).await {
        Ok(connected) => connected.err().map(|error| error.to_string()),
        Err(_) => Some(format!("no connection within {} s", PROBE_TIMEOUT.as_secs())),
    })
}

/// One validated subscription, independent of the database.
pub(crate) struct Delivery {
    subscription: Subscription,
    endpoint: Endpoint,
}

/// Validates the subscriptions without opening a connection.
pub(crate) fn prepare(push: &Push, subscriptions: &[Subscription]) -> Result<Vec<Delivery>> {
    if subscriptions.is_empty() {
        return Ok(Vec::new());
    }
    let connector = Connector::new(push)?;
    let mut deliveries = Vec::with_capacity(subscriptions.len());
    for subscription in subscriptions {
        let Subscription { topic, group, .. } = subscription;
        for url in std::iter::once(&subscription.url).chain(&subscription.rehearse_url) {
            push.rules
                .check_literal(url)
                .map_err(|error| Error::usage(format!("the subscription of {group} to {topic}: {error}")))?;
        }
        let endpoint = Endpoint::new(connector.clone(), subscription);
        deliveries.push(Delivery { subscription: subscription.clone(), endpoint });
    }
    Ok(deliveries)
}

/// Delivers until `stop`. `Err` if the broker fails permanently.
pub(crate) async fn run<D: Inbox + OutboxWriter + Rehearsals>(
    database: D,
    capabilities: DatabaseCapabilities,
    broker: Arc<dyn Broker>,
    delivery: Delivery,
    stop: CancellationToken,
) -> landfall::Result<()> {
    let Delivery { subscription, endpoint } = delivery;
    let name = format!("{}/{}", subscription.topic, subscription.group);
    // Created here because it registers its metrics, and the recorder is installed by now.
    let handler = Post { endpoint, dependency: Dependency::new(name, guards(&subscription))? };
    let defaults = consume::Options::default();
    let options = consume::Options {
        concurrency: subscription.concurrency,
        backoff: subscription.backoff,
        retry_lane: subscription.retry_lane,
        // A database with a single writer cannot keep a letter locked during the call, so only one worker may redrive.
        redrive_concurrency: if capabilities.concurrent_writers { defaults.redrive_concurrency } else { 1 },
        ..defaults
    };
    let database = DeferredInbox::new(database, capabilities.concurrent_writers);
    let Subscription { topic, group, url, letter_topic, rehearse_url, .. } = subscription;
    tracing::info!(%topic, %group, %url, "pushing");
    let mut builder = Consumer::builder(database, broker).topic(topic).group(group).handler(handler).options(options);
    if letter_topic {
        builder = builder.dead_letter_topic();
    }
    // Without an endpoint of its own, the receiver cannot tell a rehearsal.
    if rehearse_url.is_some() {
        builder = builder.rehearsals();
    }
    builder.build()?.run(stop).await
}

/// Options that guard a single attempt; the consumer retries and preserves order.
fn guards(subscription: &Subscription) -> Options {
    let policy = RetryPolicy { jitter: Jitter::Full, ..subscription.backoff.into() };
    let concurrency = subscription.concurrency;
    Options {
        call_timeout: subscription.timeout,
        concurrency,
        waiting: concurrency,
        policy,
        // The receiver deduplicates by `Idempotency-Key`.
        repeat: Repeat::Safe,
        ..Options::default()
    }
}

/// A handler that posts the message.
struct Post {
    endpoint: Endpoint,
    dependency: Dependency,
}

impl<D: Inbox> Handler<DeferredInbox<D>> for Post {
    async fn handle(&self, context: Context<'_, DeferredInbox<D>>) -> Result<(), Failure> {
        if context.is_rehearsal {
            // Not through the dependency: a rehearsal says nothing about its health.
            return self.endpoint.rehearse(context.message).await;
        }
        let posted = self.dependency.attempt(context.attempt_since_redrive, || self.endpoint.post(context.message));
        posted
            .await
            .map_err(|failure| Failure { error: format!("POST {}: {}", self.endpoint, failure.error), ..failure })
    }
}
