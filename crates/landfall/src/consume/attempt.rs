//! One message through one transaction, as often as it takes.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use landfall_core::{
    Admission, Backoff, Delivery, Error, ErrorCode, Failure, GroupName, Inbox, Message, MessageId, Origin, Position,
    Result, TopicName, Verdict,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::handler::{AfterCommit, Context, Handler};

/// Everything a try needs, shared by all lanes and the redrive.
pub(super) struct Attempts<D, H> {
    pub(super) database: D,
    pub(super) topic: TopicName,
    pub(super) group: GroupName,
    pub(super) handler: H,
    pub(super) backoff: Backoff,
    /// Bounds the transactions that are open at the same time; nobody holds a permit while waiting for a retry.
    pub(super) running: Semaphore,
}

/// How a try ended, as far as the database is concerned.
enum Tried {
    /// Committed, or found to be committed before: acknowledge. The word is for the metrics.
    Settled(&'static str),
    Failed(Failure),
}

impl<D: Inbox, H: Handler<D>> Attempts<D, H> {
    /// Tries until the message has taken effect, is known to have, or is parked; then acknowledges it. Returns early,
    /// giving the delivery back, only when `stop` is cancelled.
    pub(super) async fn settle(&self, delivery: Delivery, stop: &CancellationToken) {
        let (message, position, acknowledge) = delivery.into_parts();
        let settled = match message {
            Ok(message) => self.settle_message(&message, position, stop).await,
            Err(error) => self.settle_unreadable(&error, position, stop).await,
        };
        let Some(outcome) = settled else {
            return;
        };
        metrics::counter!("landfall_handled_total", "outcome" => outcome).increment(1);
        fail::fail_point!("consume.after-commit");
        if let Err(error) = acknowledge.ack().await {
            tracing::warn!(%error, "not acknowledged; the message comes again and the inbox turns it away");
        }
    }

    async fn settle_message(
        &self,
        message: &Message,
        position: Position,
        stop: &CancellationToken,
    ) -> Option<&'static str> {
        let (mut failures, mut trouble) = (0, 0);
        loop {
            let pause = match self.attempt(message, Some(position), failures + 1).await {
                Ok(Tried::Settled(outcome)) => return Some(outcome),
                Ok(Tried::Failed(failure)) => {
                    (failures, trouble) = (failures + 1, 0);
                    let delay = self.backoff.delay_after(failures, rand::random());
                    match (failure.verdict, delay) {
                        (Verdict::Retry, Some(delay)) => {
                            tracing::warn!(message_id = %message.id, %failure, failures, ?delay, "handler failed; trying again");
                            delay
                        }
                        _ => return self.park(message, position, failures, &failure, stop).await,
                    }
                }
                Err(error) => {
                    trouble += 1;
                    self.pause_for_database(&error, trouble)
                }
            };
            if !pause_unless_stopped(pause, stop).await {
                return None;
            }
        }
    }

    /// One try in one transaction. `Err` is the database's trouble and spends no attempt; a commit whose outcome is
    /// unknown is among it, since the next try finds the inbox row if it happened.
    async fn attempt(&self, message: &Message, origin: Origin, attempt: u32) -> Result<Tried> {
        let _permit = self.running.acquire().await.map_err(closed)?;
        let mut transaction = self.database.begin().await?;
        match self.database.admit(&mut transaction, &self.group, message, origin).await? {
            Admission::Duplicate => Ok(Tried::Settled("duplicate")),
            Admission::Held => {
                self.database.commit(transaction).await?;
                Ok(Tried::Settled("held"))
            }
            Admission::Fresh => {
                let mut after_commit = None;
                if let Err(failure) = self.call(&mut transaction, message, attempt, &mut after_commit).await {
                    return Ok(Tried::Failed(failure));
                }
                fail::fail_point!("consume.after-handler");
                self.database.commit(transaction).await?;
                if let Some(after_commit) = after_commit {
                    after_commit();
                }
                Ok(Tried::Settled("effect"))
            }
        }
    }

    /// Runs the handler; a panic is a failure like any other, so that it cannot take the process down in a loop.
    pub(super) async fn call(
        &self,
        connection: &mut D::Connection,
        message: &Message,
        attempt: u32,
        after_commit: &mut AfterCommit,
    ) -> Result<(), Failure> {
        let context = Context { message, connection, attempt, database: &self.database, after_commit };
        // The call itself is inside the block: what runs before the future's first await may panic too.
        match AssertUnwindSafe(async { self.handler.handle(context).await }).catch_unwind().await {
            Ok(result) => result,
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
                Err(Failure::retry(text).with_code(ErrorCode::PANIC))
            }
        }
    }

    /// Makes it a dead letter, for as long as that takes: a message is not let go before it is in a safe place.
    async fn park(
        &self,
        message: &Message,
        position: Position,
        attempts: u32,
        failure: &Failure,
        stop: &CancellationToken,
    ) -> Option<&'static str> {
        let mut trouble = 0;
        loop {
            match self.try_park(message, position, attempts, failure).await {
                Ok(outcome) => {
                    tracing::error!(message_id = %message.id, %failure, attempts, "parked; its key waits behind it");
                    return Some(outcome);
                }
                Err(error) => {
                    trouble += 1;
                    let pause = self.pause_for_database(&error, trouble);
                    if !pause_unless_stopped(pause, stop).await {
                        return None;
                    }
                }
            }
        }
    }

    async fn try_park(
        &self,
        message: &Message,
        position: Position,
        attempts: u32,
        failure: &Failure,
    ) -> Result<&'static str> {
        let _permit = self.running.acquire().await.map_err(closed)?;
        let origin = Some(position);
        let mut transaction = self.database.begin().await?;
        match self.database.admit(&mut transaction, &self.group, message, origin).await? {
            Admission::Duplicate => Ok("duplicate"),
            Admission::Held => self.database.commit(transaction).await.map(|()| "held"),
            Admission::Fresh => {
                self.database.park(&mut transaction, &self.group, message, origin, attempts, failure).await?;
                self.database.commit(transaction).await?;
                metrics::counter!("landfall_dlq_in_total").increment(1);
                Ok("parked")
            }
        }
    }

    /// What stands in the broker cannot be a message: a dead letter says where it stands. Its id is made from the
    /// place, so that a redelivery finds it again.
    async fn settle_unreadable(
        &self,
        error: &Error,
        position: Position,
        stop: &CancellationToken,
    ) -> Option<&'static str> {
        let id = MessageId::of_place(&self.topic, position);
        let message = Message::new(self.topic.clone(), "").with_id(id);
        self.park(&message, position, 1, &Failure::park(ErrorCode::VALIDATION, error), stop).await
    }

    fn pause_for_database(&self, error: &Error, trouble: u32) -> Duration {
        let endless = Backoff { max_attempts: u32::MAX, ..self.backoff };
        let pause = endless.delay_after(trouble, rand::random()).unwrap_or(endless.cap);
        tracing::warn!(%error, ?pause, "the database cannot be used; waiting");
        pause
    }
}

/// Whether the pause was taken to its end.
pub(super) async fn pause_unless_stopped(pause: Duration, stop: &CancellationToken) -> bool {
    tokio::select! { () = tokio::time::sleep(pause) => true, () = stop.cancelled() => false }
}

fn closed(error: tokio::sync::AcquireError) -> Error {
    Error::new(landfall_core::ErrorKind::Internal, "the consumer's own semaphore was closed").with_source(error)
}
