//! One message outside of any batch: attempted until it is settled.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_core::adapter::{Arrival, Delivery};
use landfall_core::{Backoff, Database, Error, ErrorCode, Failure, Inbox, Message, Position, TopicName};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::acknowledge;
use crate::consume::outcome::Handled;
use crate::consume::retry::{AttemptCount, DatabaseBackoff, RetryRecord, RetryRouter, Route, sleep_unless_stopped};
use crate::consume::sequence::{Early, SequenceGuard};
use crate::consume::transaction::{MessageTransaction, TransactionError};
use crate::dead_letter::{Parker, placeholder};

/// A delivery that was removed from its batch.
#[derive(Debug)]
pub(super) struct Isolated {
    pub(super) delivery: Delivery,
    /// How its last attempt failed, if it had one.
    pub(super) failure: Option<Failure>,
}

/// What happens to the delivery of a single message.
pub(crate) enum Disposition {
    /// Acknowledge it.
    Settled(Handled),
    /// Return it to the broker for redelivery after this time.
    Redeliver(Duration),
    /// Keep it outside of its key lane: it waits for predecessors, which may be behind it in that lane.
    Early(Failure),
    /// Acknowledge it without an effect: it belongs to another group.
    OtherGroup,
}

/// How far a message has come before [`IsolatedRunner::settle`].
pub(crate) struct Progress {
    pub(crate) count: AttemptCount,
    /// How its last attempt failed, if that is still to be decided upon.
    pub(crate) failure: Option<Failure>,
    /// Whether successors wait for it in a key lane.
    pub(crate) in_lane: bool,
}

/// Attempts single messages: retries with backoff, moves them to the retry lane, parks them.
pub(crate) struct IsolatedRunner<D: Database> {
    pub(crate) topic: TopicName,
    pub(crate) transaction: Arc<MessageTransaction<D>>,
    pub(crate) sequence: Arc<SequenceGuard<D>>,
    pub(crate) parker: Parker<D>,
    pub(crate) router: Arc<RetryRouter>,
    pub(crate) backoff: Backoff,
    /// Bounds the open transactions. No message holds a permit while it waits for its next attempt.
    pub(crate) permits: Arc<Semaphore>,
}

impl<D: Inbox> IsolatedRunner<D> {
    /// Settles one delivery and acknowledges it. When `stop` is cancelled the delivery is returned by being dropped.
    ///
    /// Returns the delivery if it turns out to be early: the caller takes it out of its key lane and calls this again.
    pub(super) async fn run(&self, isolated: Isolated, stop: &CancellationToken) -> Option<Isolated> {
        let (message, position, acknowledgement) = isolated.delivery.into_parts();
        let disposition = match &message {
            Ok(message) => {
                let in_lane = isolated.failure.as_ref().is_none_or(|failure| self.sequence.early(failure).is_none());
                let progress = Progress { count: AttemptCount::default(), failure: isolated.failure, in_lane };
                self.settle(Arrival { message, origin: Some(position) }, progress, stop).await
            }
            Err(error) => self.park_unreadable(error, position, stop).await,
        };
        if let Some(Disposition::Early(failure)) = disposition {
            let delivery = Delivery::new(message, position, acknowledgement);
            return Some(Isolated { delivery, failure: Some(failure) });
        }
        acknowledge::conclude(acknowledgement, disposition).await;
        None
    }

    /// Attempts `arrival` until it has taken effect, is a duplicate, is parked, or waits in the retry lane. Returns
    /// `None` when `stop` is cancelled first. Operators see it meanwhile, from its first failure on.
    pub(crate) async fn settle(
        &self,
        arrival: Arrival<'_>,
        progress: Progress,
        stop: &CancellationToken,
    ) -> Option<Disposition> {
        let is_recorded = progress.count.failures > 0;
        let mut record = RetryRecord::new(&self.transaction.inbox, arrival.message, is_recorded);
        let disposition = self.attempt_until_settled(arrival, progress, &mut record, stop).await;
        record.clear().await;
        disposition
    }

    async fn attempt_until_settled(
        &self,
        arrival: Arrival<'_>,
        progress: Progress,
        record: &mut RetryRecord<'_, D>,
        stop: &CancellationToken,
    ) -> Option<Disposition> {
        let Progress { mut count, mut failure, in_lane } = progress;
        let (message, started) = (arrival.message, Instant::now());
        let mut database = DatabaseBackoff::new(self.backoff);
        let mut predecessor = None;
        loop {
            if let Some(failure) = failure.take() {
                database.reset();
                let next = self.after_failure(arrival, &mut count, &failure, started.elapsed(), record, stop).await;
                let pause = match next {
                    ControlFlow::Continue(pause) => pause,
                    ControlFlow::Break(disposition) => return disposition,
                };
                let continues = match (self.sequence.early(&failure), &predecessor) {
                    // Its predecessor may have been applied since the attempt: check once more after registering.
                    (Some(_), None) => {
                        predecessor = Some(self.sequence.wait_for_predecessor(message));
                        true
                    }
                    (Some(_), Some(predecessor)) => predecessor.notified(pause, stop).await,
                    (None, _) => {
                        let (message_id, attempts) = (message.id, count.failures.max(1));
                        let (topic, key) = (&message.topic, message.key.as_ref().map(|key| key.as_str()));
                        let group = &self.transaction.inbox.group;
                        tracing::warn!(
                            %message_id, %topic, key, %group, %failure, attempts, ?pause, "handler failed, retrying"
                        );
                        let recorded = record.failed(attempts, &failure, pause);
                        tokio::join!(sleep_unless_stopped(pause, stop), recorded).0
                    }
                };
                if !continues {
                    return None;
                }
            }
            let permit = self.permits.acquire().await.ok()?;
            let result = self.transaction.run(&[arrival], count.calls + 1).await;
            drop(permit);
            match result {
                Ok(outcomes) => return outcomes.first().copied().map(Disposition::Settled),
                Err(TransactionError::Failed(failed)) if in_lane && self.sequence.early(&failed.failure).is_some() => {
                    return Some(Disposition::Early(failed.failure));
                }
                Err(TransactionError::Failed(failed)) => failure = Some(failed.failure),
                Err(TransactionError::Unreachable(error) | TransactionError::Database(error)) => {
                    if !database.sleep_after(&error, stop).await {
                        return None;
                    }
                }
            }
        }
    }

    /// Decides what follows a failed attempt: the pause before the next one, or the end of this delivery.
    async fn after_failure(
        &self,
        arrival: Arrival<'_>,
        count: &mut AttemptCount,
        failure: &Failure,
        waited: Duration,
        record: &mut RetryRecord<'_, D>,
        stop: &CancellationToken,
    ) -> ControlFlow<Option<Disposition>, Duration> {
        let pause = match self.sequence.early(failure) {
            Some(Early::Refuse(delay)) => return ControlFlow::Break(Some(Disposition::Redeliver(delay))),
            Some(Early::Park) => None,
            Some(Early::Wait(at_most)) => {
                let left = at_most.saturating_sub(waited);
                count.pause_after(failure, self.backoff).map(|pause| pause.min(left)).filter(|_| !left.is_zero())
            }
            None => count.pause_after(failure, self.backoff),
        };
        let attempts = count.failures.max(1);
        let Some(pause) = pause else {
            let parked = self.parker.park(arrival, attempts, failure, None, stop).await;
            return ControlFlow::Break(parked.map(Disposition::Settled));
        };
        match self.router.route(arrival.message, failure, pause) {
            Route::Database => {
                let delayed = self.parker.park(arrival, attempts, failure, Some(pause), stop).await;
                ControlFlow::Break(delayed.map(Disposition::Settled))
            }
            Route::Topic(topic) => {
                let group = &self.transaction.inbox.group;
                if !topic.publish(arrival, group, attempts, failure, pause).await {
                    return ControlFlow::Continue(pause);
                }
                let Message { id: message_id, topic, key, .. } = arrival.message;
                let key = key.as_ref().map(|key| key.as_str());
                tracing::warn!(
                    %message_id, %topic, key, %group, %failure, attempts, ?pause,
                    "handler failed, moved to the retry topic"
                );
                record.failed(attempts, failure, pause).await;
                record.keep();
                ControlFlow::Break(Some(Disposition::Settled(Handled::Delayed)))
            }
            Route::InProcess => ControlFlow::Continue(pause),
        }
    }

    /// Parks a delivery that is not a message. The dead letter records its position and its payload.
    pub(crate) async fn park_unreadable(
        &self,
        error: &Error,
        position: Position,
        stop: &CancellationToken,
    ) -> Option<Disposition> {
        let message = placeholder(&self.topic, position, error.payload().cloned().unwrap_or_default());
        let arrival = Arrival { message: &message, origin: Some(position) };
        let failure = Failure::park(ErrorCode::VALIDATION, error);
        self.parker.park(arrival, 1, &failure, None, stop).await.map(Disposition::Settled)
    }
}
