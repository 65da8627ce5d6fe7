//! The topic `<topic>.dlq`: parked messages are published there too, for tools that watch topics and not tables (D1).
//!
//! The copy goes through the outbox of the transaction that parks the message: there is one if and only if there is a
//! dead letter. It has the same id, with the failure in its headers. Redrives start from the table; a message that is
//! parked again after a redrive is published again, with its latest failure.

use futures_util::future::BoxFuture;
use landfall_core::{Database, Message, OutboxWriter, Result, TopicName};

/// Publishes dead letters through an outbox. An object, so that consumers without a dead-letter topic do not need a
/// database with an outbox.
pub(crate) trait DeadLetterTopic<D: Database>: Send + Sync {
    fn name(&self) -> &TopicName;

    fn enqueue<'a>(
        &'a self,
        database: &'a D,
        connection: &'a mut D::Connection,
        copy: Message,
    ) -> BoxFuture<'a, Result<()>>;

    /// Wakes the relay, after the commit.
    fn wake_relay(&self, database: &D);
}

/// A dead-letter topic behind the outbox of the consumer's own database.
pub(crate) struct OutboxTopic(TopicName);

impl OutboxTopic {
    /// Fails if `<topic>.dlq` is not a valid topic name: it may be too long.
    pub(crate) fn new(main: &TopicName) -> Result<Self> {
        TopicName::new(format!("{main}.dlq")).map(Self)
    }
}

impl<D: OutboxWriter> DeadLetterTopic<D> for OutboxTopic {
    fn name(&self) -> &TopicName {
        &self.0
    }

    fn enqueue<'a>(
        &'a self,
        database: &'a D,
        connection: &'a mut D::Connection,
        copy: Message,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { database.enqueue(connection, &[copy]).await })
    }

    fn wake_relay(&self, database: &D) {
        database.wake();
    }
}
