//! Writes dead letters inside a transaction of the consumer.

use landfall_core::adapter::{Arrival, Hold, Parking};
use landfall_core::{Database, ErrorCode, ErrorKind, Failure, Inbox, Result};

use super::headers::with_failure_headers;
use super::topic::DeadLetterTopic;
use crate::call_deadline::CallDeadline;
use crate::consume::{GroupInbox, Order};

/// The dead-letter table of one group, and its `.dlq` topic if it has one.
pub(crate) struct DeadLetterWriter<D: Database> {
    inbox: GroupInbox<D>,
    topic: Option<Box<dyn DeadLetterTopic<D>>>,
    order: Order,
    checks_sequence: bool,
}

impl<D: Database> DeadLetterWriter<D> {
    pub(crate) fn new(
        inbox: GroupInbox<D>,
        topic: Option<Box<dyn DeadLetterTopic<D>>>,
        order: Order,
        checks_sequence: bool,
    ) -> Self {
        Self { inbox, topic, order, checks_sequence }
    }

    /// Wakes the relay for copies on the `.dlq` topic, after the commit.
    pub(crate) fn wake_relay(&self) {
        if let Some(topic) = &self.topic {
            topic.wake_relay(&self.inbox.database);
        }
    }

    /// What a dead letter holds back. An early message must not block the predecessors it waits for, and no message
    /// waits for a stale one.
    pub(super) fn hold(&self, failure: &Failure) -> Hold {
        let is_stale = self.checks_sequence && failure.code == ErrorCode::VERSION_CONFLICT;
        let is_out_of_order = is_stale || failure.code == ErrorCode::OUT_OF_ORDER;
        if self.order == Order::Unordered || is_out_of_order { Hold::Nothing } else { Hold::Key }
    }
}

impl<D: Inbox> DeadLetterWriter<D> {
    /// Writes to the table and, unless the message is only delayed, to the `.dlq` topic.
    pub(crate) async fn write(
        &self,
        connection: &mut D::Connection,
        arrival: Arrival<'_>,
        parking: Parking<'_>,
    ) -> Result<()> {
        let Arrival { message, origin } = arrival;
        let GroupInbox { database, group, .. } = &self.inbox;
        CallDeadline::STATEMENT.run(database.park(connection, group, message, origin, parking)).await?;
        if parking.again.is_none() {
            self.publish(connection, arrival, parking.attempts, parking.failure).await?;
        }
        Ok(())
    }

    /// Enqueues a copy for the `.dlq` topic, if there is one.
    pub(super) async fn publish(
        &self,
        connection: &mut D::Connection,
        arrival: Arrival<'_>,
        attempts: u32,
        failure: &Failure,
    ) -> Result<()> {
        let Some(topic) = &self.topic else { return Ok(()) };
        let GroupInbox { database, group, .. } = &self.inbox;
        let copy = with_failure_headers(arrival, topic.name().clone(), group, attempts, failure);
        match CallDeadline::STATEMENT.run(topic.enqueue(database, connection, copy)).await {
            // Too large for this outbox, as a message from another producer may be. The outbox wrote nothing. The
            // missing copy must not prevent the message from being parked.
            Err(error) if error.kind() == ErrorKind::Invalid => {
                let (message_id, topic) = (arrival.message.id, &arrival.message.topic);
                let key = arrival.message.key.as_ref().map(|key| key.as_str());
                tracing::error!(
                    %message_id, %topic, key, %group, %error, "dead letter not published, it is in the table only"
                );
                Ok(())
            }
            enqueued => enqueued,
        }
    }
}
