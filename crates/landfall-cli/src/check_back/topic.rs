//! Takes half messages from a topic: JSON with `action`, which is prepare, commit or rollback.
//!
//! The same meaning as over HTTP. A message that cannot be read, or contradicts the first verdict, becomes a dead
//! letter. The database is called outside of the inbox transaction. Every call is idempotent, so a redelivery is
//! harmless.

use std::sync::Arc;
use std::time::Duration;

use landfall::adapter::DatabaseCapabilities;
use landfall::consume::{Consumer, Context, Handler};
use landfall::half::{HalfCoordinator, StoredCoordinator};
use landfall::{
    Broker, Decided, ErrorCode, Failure, GroupName, HalfMessages, Inbox, Limits, OutboxWriter, Prepared, TopicName,
};
use tokio_util::sync::CancellationToken;

use super::request::{Action, Fields};
use crate::push::inbox::DeferredInbox;

/// The consumer group of all coordinators.
const GROUP: &str = "landfall.check-back";

/// What the consumer of the topic needs besides the database.
#[derive(Clone)]
pub(crate) struct Intake {
    pub(crate) topic: TopicName,
    pub(crate) immunity: Duration,
    pub(crate) limits: Limits,
}

/// Takes messages until `stop`. `Err` if the broker fails permanently.
pub(crate) async fn run<D: Inbox + OutboxWriter>(
    database: D,
    capabilities: DatabaseCapabilities,
    store: Arc<dyn HalfMessages>,
    broker: Arc<dyn Broker>,
    intake: Intake,
    stop: CancellationToken,
) -> landfall::Result<()> {
    let topic = intake.topic.clone();
    tracing::info!(%topic, "taking half messages");
    let handler = Take { coordinator: StoredCoordinator::new(store), intake };
    let database = DeferredInbox::new(database, capabilities.concurrent_writers);
    Consumer::builder(database, broker)
        .topic(topic)
        .group(GroupName::new(GROUP)?)
        .handler(handler)
        .build()?
        .run(stop)
        .await
}

struct Take {
    coordinator: StoredCoordinator,
    intake: Intake,
}

impl<D: Inbox> Handler<DeferredInbox<D>> for Take {
    async fn handle(&self, context: Context<'_, DeferredInbox<D>>) -> Result<(), Failure> {
        self.take(&context.message.payload).await
    }
}

impl Take {
    async fn take(&self, payload: &[u8]) -> Result<(), Failure> {
        let invalid = |why: String| Failure::park(ErrorCode::VALIDATION, why);
        let fields = Fields::parse(payload).map_err(invalid)?;
        match fields.action().map_err(invalid)? {
            Action::Prepare => {
                let half = fields.half_message(self.intake.immunity).map_err(invalid)?;
                half.check(&self.intake.limits).map_err(|error| invalid(error.to_string()))?;
                match self.coordinator.prepare(&half).await? {
                    Prepared::Fresh(_) | Prepared::Repeated(_) => Ok(()),
                    Prepared::Conflict => {
                        Err(invalid(format!("another half message was prepared under the id {}", half.message.id)))
                    }
                }
            }
            Action::Decide(id, verdict) => match self.coordinator.decide(id, verdict).await? {
                Decided::Now | Decided::Before | Decided::Early => Ok(()),
                Decided::Contradiction(first) => {
                    let first = first.state().as_str();
                    Err(invalid(format!("half message {id} is {first} already; the first verdict is final")))
                }
            },
        }
    }
}
