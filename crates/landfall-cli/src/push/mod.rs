//! The role `push`: each `[[subscription]]` is a consumer whose effect is an HTTP POST.
//!
//! ```text
//!   delivery ─▶ new? ─▶ POST ─▶ 2xx ─▶ inbox row ─▶ acknowledge
//!                         │ 429, 5xx, timeout: again later, its key waiting; then parked
//!                         │ 503, no connection: again later, and it spends no attempt
//!                         │ other 4xx: parked at once
//!                         └ breaker open, budget empty: waits, and spends no attempt
//! ```
//!
//! The receiver sees a message at least once and per key in order; after a crash between its answer and the inbox row
//! it sees the same `Idempotency-Key` again.
//!
//! * [`address`] decides where may be posted to, [`connector`] connects there and nowhere else;
//! * [`request`] is the message as a request, [`signature`] its signature, [`reply`] what the answer means;
//! * [`inbox`] keeps the database out of the way while the receiver works.

mod address;
mod certificates;
mod connector;
mod endpoint;
mod inbox;
mod reply;
mod request;
mod signature;

use std::sync::Arc;

use landfall::adapter::DatabaseCapabilities;
use landfall::consume::{self, Consumer, Context, Handler};
use landfall::retry::{Dependency, Jitter, Options, RetryPolicy};
use landfall::{Broker, Failure, Inbox, OutboxWriter};
use tokio_util::sync::CancellationToken;

use crate::config::{Push, Subscription};
use crate::error::{Error, Result};
use connector::Connector;
use endpoint::Endpoint;
use inbox::AfterCall;

pub(crate) use address::Rules;
pub(crate) use reply::LONGEST_RETRY_AFTER;
pub(crate) use signature::SigningKey;

/// One subscription, ready to be run on whichever database there is.
pub(crate) struct Delivery {
    subscription: Subscription,
    endpoint: Endpoint,
}

/// Refuses what can never work, without connecting anywhere.
pub(crate) fn prepare(push: &Push, subscriptions: &[Subscription]) -> Result<Vec<Delivery>> {
    if subscriptions.is_empty() {
        return Ok(Vec::new());
    }
    let connector = Connector::new(push)?;
    let mut deliveries = Vec::with_capacity(subscriptions.len());
    for subscription in subscriptions {
        let Subscription { topic, group, .. } = subscription;
        push.rules
            .check_literal(&subscription.url)
            .map_err(|error| Error::wrong_use(format!("the subscription of {group} to {topic}: {error}")))?;
        let endpoint = Endpoint::new(connector.clone(), subscription);
        deliveries.push(Delivery { subscription: subscription.clone(), endpoint });
    }
    Ok(deliveries)
}

/// Delivers until `stop`. `Err` if the broker fails in a way that no waiting mends.
pub(crate) async fn run<D: Inbox + OutboxWriter>(
    database: D,
    capabilities: DatabaseCapabilities,
    broker: Arc<dyn Broker>,
    delivery: Delivery,
    stop: CancellationToken,
) -> landfall::Result<()> {
    let Delivery { subscription, endpoint } = delivery;
    let name = format!("{}/{}", subscription.topic, subscription.group);
    // Only now, when there is somebody who counts.
    let handler = Post { endpoint, dependency: Dependency::new(name, guards(&subscription)) };
    let defaults = consume::Options::default();
    let options = consume::Options {
        concurrency: subscription.concurrency,
        backoff: subscription.backoff,
        // Where the database cannot keep a letter locked meanwhile, nobody else must look for one.
        redrive_concurrency: if capabilities.concurrent_writers { defaults.redrive_concurrency } else { 1 },
        ..defaults
    };
    let database = AfterCall::new(database, capabilities.concurrent_writers);
    let Subscription { topic, group, url, letter_topic, .. } = subscription;
    tracing::info!(%topic, %group, %url, "pushing");
    let mut builder = Consumer::builder(database, broker).topic(topic).group(group).handler(handler).options(options);
    if letter_topic {
        builder = builder.dead_letter_topic();
    }
    builder.build()?.run(stop).await
}

/// The consumer repeats and keeps order; this only guards each try.
fn guards(subscription: &Subscription) -> Options {
    let policy = RetryPolicy { jitter: Jitter::Full, ..subscription.backoff.into() };
    let concurrency = subscription.concurrency;
    Options { call_timeout: subscription.timeout, concurrency, waiting: concurrency, policy, ..Options::default() }
}

/// Handles a message by posting it.
struct Post {
    endpoint: Endpoint,
    dependency: Dependency,
}

impl<D: Inbox> Handler<AfterCall<D>> for Post {
    async fn handle(&self, context: Context<'_, AfterCall<D>>) -> Result<(), Failure> {
        self.dependency.attempt(context.attempt, || self.endpoint.post(context.message)).await
    }
}
