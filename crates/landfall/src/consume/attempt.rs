//! One transaction for one message or for several, and one message by itself as often as it takes.

use std::sync::Arc;
use std::time::Duration;

use landfall_core::{
    Acknowledge, Admission, Arrival, Backoff, Error, ErrorCode, ErrorKind, Failed, Failure, GroupName, Inbox, Message,
    MessageId, Position, Result, RetryPolicy, TopicName, Verdict,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::batch::Apart;
use super::work::{Call, Stumble, Work};

/// Everything a try needs, shared by all lanes and the redrive.
pub(super) struct Attempts<D, W> {
    pub(super) database: D,
    pub(super) topic: TopicName,
    pub(super) group: GroupName,
    pub(super) work: W,
    pub(super) backoff: Backoff,
    /// Bounds the transactions that are open at the same time; nobody holds a permit while waiting for a retry.
    pub(super) running: Arc<Semaphore>,
}

/// How a transaction ended.
pub(super) enum Trial {
    /// Committed, or found to be committed before: acknowledge. One word each, for the metrics.
    Settled(Vec<&'static str>),
    /// Rolled back because of what is in it.
    Failed(Stumble),
    /// The database could not even begin one.
    Unreachable(Error),
    /// The database's trouble, which spends no attempt. A commit whose outcome is unknown is among it, since the next
    /// try finds the inbox rows if it happened.
    Trouble(Error),
}

impl<D: Inbox, W: Work<D>> Attempts<D, W> {
    /// Takes charge of all messages, lets those take effect that are new, commits.
    pub(super) async fn transact(&self, arrivals: &[Arrival<'_>], attempt: u32) -> Trial {
        let mut transaction = match self.database.begin().await {
            Ok(transaction) => transaction,
            Err(error) => return Trial::Unreachable(error),
        };
        let admissions = match self.admit(&mut transaction, arrivals).await {
            Ok(admissions) => admissions,
            Err(error) => return Trial::Trouble(error),
        };
        let places: Vec<usize> =
            admissions.iter().enumerate().filter(|(_, a)| **a == Admission::Fresh).map(|(place, _)| place).collect();
        let mut after_commit = None;
        if !places.is_empty() {
            let messages: Vec<&Message> = places.iter().map(|place| arrivals[*place].message).collect();
            let call = Call {
                messages: &messages,
                connection: &mut *transaction,
                attempt,
                database: &self.database,
                after_commit: &mut after_commit,
            };
            if let Err(Stumble { at, failure }) = self.work.apply(call).await {
                return Trial::Failed(Stumble { at: at.map(|at| places[at]), failure });
            }
            fail::fail_point!("consume.after-handler");
        }
        if admissions.iter().any(|admission| *admission != Admission::Duplicate) {
            match self.database.commit(transaction).await {
                Ok(()) => {}
                Err(error) if is_refusal(&error) => {
                    return Trial::Failed(Stumble { at: None, failure: Failure::retry(error) });
                }
                Err(error) => return Trial::Trouble(error),
            }
        }
        if let Some(after_commit) = after_commit {
            after_commit();
        }
        Trial::Settled(admissions.into_iter().map(word).collect())
    }

    async fn admit(&self, connection: &mut D::Connection, arrivals: &[Arrival<'_>]) -> Result<Vec<Admission>> {
        match arrivals {
            // A statement less, and the usual case where messages come one by one.
            [Arrival { message, origin }] => {
                Ok(vec![self.database.admit(connection, &self.group, message, *origin).await?])
            }
            several => self.database.admit_batch(connection, &self.group, several).await,
        }
    }

    /// Tries one message until it has taken effect, is known to have, or is parked; then acknowledges it. Returns
    /// early, giving the delivery back, only when `stop` is cancelled.
    pub(super) async fn settle_apart(&self, apart: Apart, stop: &CancellationToken) {
        let (message, position, acknowledge) = apart.delivery.into_parts();
        let settled = match message {
            Ok(message) => self.settle_message(&message, position, apart.failed, stop).await,
            Err(error) => self.settle_unreadable(&error, position, stop).await,
        };
        if let Some(outcome) = settled {
            self.acknowledge(acknowledge, outcome).await;
        }
    }

    /// `failed` is how its first try ended, if there was one.
    async fn settle_message(
        &self,
        message: &Message,
        position: Position,
        mut failed: Option<Failure>,
        stop: &CancellationToken,
    ) -> Option<&'static str> {
        let (mut failures, mut waits, mut trouble) = (0, 0, 0);
        let policy = RetryPolicy::from(self.backoff);
        let arrival = Arrival { message, origin: Some(position) };
        loop {
            if let Some(failure) = failed.take() {
                trouble = 0;
                // Waiting spends no attempt, and goes on for as long as it takes.
                let (policy, attempts) = if failure.verdict == Verdict::Wait {
                    waits += 1;
                    (policy.endless(), waits)
                } else {
                    failures += 1;
                    (policy, failures)
                };
                let failed = Failed { attempts, retry_after: failure.retry_after, ..Failed::default() };
                let delay = policy.delay_after(failed, rand::random());
                let pause = match (failure.verdict, delay) {
                    (Verdict::Retry | Verdict::Wait, Some(delay)) => delay,
                    _ => return self.park(arrival, failures, &failure, stop).await,
                };
                tracing::warn!(message_id = %message.id, %failure, failures, ?pause, "handler failed; trying again");
                if !pause_unless_stopped(pause, stop).await {
                    return None;
                }
            }
            let permit = self.running.acquire().await.ok()?;
            let trial = self.transact(&[arrival], failures + 1).await;
            drop(permit);
            match trial {
                Trial::Settled(outcomes) => return outcomes.first().copied(),
                Trial::Failed(stumble) => failed = Some(stumble.failure),
                Trial::Unreachable(error) | Trial::Trouble(error) => {
                    trouble += 1;
                    if !pause_unless_stopped(self.pause_for_database(&error, trouble), stop).await {
                        return None;
                    }
                }
            }
        }
    }

    /// Makes it a dead letter, for as long as that takes: a message is not let go before it is in a safe place.
    async fn park(
        &self,
        arrival: Arrival<'_>,
        attempts: u32,
        failure: &Failure,
        stop: &CancellationToken,
    ) -> Option<&'static str> {
        let mut trouble = 0;
        loop {
            let permit = self.running.acquire().await.ok()?;
            let parked = self.try_park(arrival, attempts, failure).await;
            drop(permit);
            match parked {
                Ok(outcome) => {
                    let message_id = arrival.message.id;
                    tracing::error!(%message_id, %failure, attempts, "parked; its key waits behind it");
                    return Some(outcome);
                }
                Err(error) => {
                    trouble += 1;
                    if !pause_unless_stopped(self.pause_for_database(&error, trouble), stop).await {
                        return None;
                    }
                }
            }
        }
    }

    async fn try_park(&self, arrival: Arrival<'_>, attempts: u32, failure: &Failure) -> Result<&'static str> {
        let Arrival { message, origin } = arrival;
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
        let arrival = Arrival { message: &message, origin: Some(position) };
        self.park(arrival, 1, &Failure::park(ErrorCode::VALIDATION, error), stop).await
    }

    pub(super) async fn acknowledge(&self, acknowledge: Box<dyn Acknowledge>, outcome: &'static str) {
        metrics::counter!("landfall_handled_total", "outcome" => outcome).increment(1);
        fail::fail_point!("consume.after-commit");
        if let Err(error) = acknowledge.ack().await {
            tracing::warn!(%error, "not acknowledged; the message comes again and the inbox turns it away");
        }
    }

    pub(super) fn pause_for_database(&self, error: &Error, trouble: u32) -> Duration {
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

/// The database will not commit this, today or tomorrow: a constraint that is checked at the end, or a transaction
/// that a handler broke and said nothing. That is the message's failure; waiting for the database would take for ever.
fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Conflict)
}

fn word(admission: Admission) -> &'static str {
    match admission {
        Admission::Fresh => "effect",
        Admission::Duplicate => "duplicate",
        Admission::Held => "held",
    }
}
