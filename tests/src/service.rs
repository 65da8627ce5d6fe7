//! The consuming service with every idempotency strategy and every retry lane.

use std::sync::Arc;
use std::time::Duration;

use landfall::consume::{
    BatchContext, BatchHandler, Consumer, Context, Handler, Idempotence, Options, Order, RedisFront, RetryLane,
    SequenceCheck, changed,
};
use landfall::{Backoff, Broker, Failure, GroupName, Result, TopicName};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::handler::{AppendEffect, Behaviour};
use crate::setup::{GROUP, TOPIC};
use crate::worker::{Adapter, consumer_options};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Service {
    /// The inbox, with several messages per transaction.
    Batches,
    /// The inbox, with one message per transaction.
    OneByOne,
    /// The inbox, with one handler call for several messages.
    SetBased,
    /// No inbox: the service's own unique constraint.
    UniqueConstraint,
    /// No inbox: an insert that does nothing if the row exists.
    Upsert,
    /// No inbox: a conditional update.
    ConditionalUpdate,
    /// No inbox row, but a guard row for the business id.
    GuardRow,
    /// The inbox plus the last version: without the inbox, a duplicate of an old message would have an old version and
    /// be parked.
    Version,
    /// A planted bug: no deduplication at all.
    Unguarded,
    /// A Redis cache at this URL in front of the inbox.
    BehindRedis(String),
    /// Failed messages wait in the database.
    DelayedInTheDatabase,
    /// Failed messages wait in the retry topic, without order.
    DelayedInATopic,
}

/// Consumes until `stop` is cancelled.
pub async fn run<D: Adapter>(
    service: Service,
    database: D,
    broker: Arc<dyn Broker>,
    backoff: Backoff,
    stop: CancellationToken,
) -> Result<()> {
    let (topic, group) = (TopicName::new(TOPIC)?, GroupName::new(GROUP)?);
    let options = options(&service, backoff);
    let plain = AppendEffect(database.clone());
    match &service {
        Service::SetBased => {
            let handler = AppendEffects(plain);
            Consumer::of_batches(database, broker, topic, group, handler, options).run(stop).await
        }
        Service::Version => {
            let consumer = Consumer::new(database, broker, topic, group, plain, options);
            consumer.in_sequence(SequenceCheck::Newest).run(stop).await
        }
        Service::BehindRedis(url) => {
            let front = RedisFront::new(url, Duration::from_secs(600))?;
            Consumer::new(database, broker, topic, group, plain, options).behind(front).run(stop).await
        }
        _ => {
            let handler = Guarded { service, effect: plain };
            Consumer::new(database, broker, topic, group, handler, options).run(stop).await
        }
    }
}

fn options(service: &Service, backoff: Backoff) -> Options {
    let options = consumer_options(backoff);
    let by_handler = Options { idempotence: Idempotence::Handler, ..options.clone() };
    match service {
        Service::OneByOne => Options { batch: 1, ..options },
        Service::UniqueConstraint | Service::Upsert | Service::ConditionalUpdate | Service::GuardRow => by_handler,
        Service::Unguarded => by_handler,
        Service::DelayedInTheDatabase => {
            Options { retry_lane: RetryLane::Database, lane_after: Duration::ZERO, ..options }
        }
        Service::DelayedInATopic => {
            Options { retry_lane: RetryLane::Topic, lane_after: Duration::ZERO, order: Order::Unordered, ..options }
        }
        _ => options,
    }
}

/// Applies the effect first, and rolls it back if the service's own tables show a duplicate.
struct Guarded<D> {
    service: Service,
    effect: AppendEffect<D>,
}

impl<D: Adapter> Handler<D> for Guarded<D> {
    async fn handle(&self, mut context: Context<'_, D>) -> Result<(), Failure> {
        let (database, message) = (&self.effect.0, context.message);
        database.record_effect(&mut *context.connection, message).await?;
        match self.service {
            Service::UniqueConstraint => {
                let billed = database.bill(&mut *context.connection, message).await;
                context.unless_there(billed, D::ONE_BILL)?;
            }
            Service::Upsert => changed(database.bill_once(&mut *context.connection, message).await?)?,
            Service::ConditionalUpdate => changed(database.advance(&mut *context.connection, message).await?)?,
            Service::GuardRow => context.first_time("order", &message.id.to_string()).await?,
            _ => {}
        }
        Behaviour::result(message, context.attempt)
    }
}

/// Applies all effects of a batch, or none.
struct AppendEffects<D>(AppendEffect<D>);

impl<D: Adapter> BatchHandler<D> for AppendEffects<D> {
    async fn handle(&self, context: BatchContext<'_, D>) -> Result<(), Failure> {
        for message in context.messages {
            self.0.0.record_effect(&mut *context.connection, message).await?;
        }
        context.messages.iter().try_for_each(|message| Behaviour::result(message, context.attempt))
    }
}
