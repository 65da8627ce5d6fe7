//! One transaction for one message or for several, and one message by itself as often as it takes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_core::{
    Acknowledge, Admission, Arrival, Backoff, Database, Delivery, Error, ErrorCode, ErrorKind, Failure, GroupName,
    Hold, Inbox, Message, MessageId, Mode, Parking, Position, Result, TopicName, Verdict,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::batch::Apart;
use super::front::FrontDoor;
use super::gate::{Early, Gate, Passage};
use super::letter_topic::{Letters, letter};
use super::once::is_already_done;
use super::options::{Idempotence, Order};
use super::tally::{Tally, endless};
use super::work::{Call, Stumble, Work};

/// Everything a try needs, shared by all lanes and the redrive.
pub(super) struct Attempts<D: Database, W> {
    pub(super) database: D,
    pub(super) topic: TopicName,
    pub(super) group: GroupName,
    pub(super) work: W,
    pub(super) backoff: Backoff,
    pub(super) order: Order,
    pub(super) idempotence: Idempotence,
    /// Checks numbers besides ids, where that is asked for.
    pub(super) gate: Option<Box<dyn Gate<D>>>,
    /// Where dead letters go besides the table, where that is asked for.
    pub(super) letters: Option<Box<dyn Letters<D>>>,
    /// Knows most copies without a transaction, where that is asked for.
    pub(super) front: Option<Arc<dyn FrontDoor<D>>>,
    /// Bounds the transactions that are open at the same time; nobody holds a permit while waiting for a retry.
    pub(super) running: Arc<Semaphore>,
}

/// How the way of a message that is alone ended.
enum End {
    /// To be acknowledged. The word is for the metrics.
    Settled(&'static str),
    /// To be delivered again after this time.
    Refused(Duration),
    /// It came too early, as only turned out now, and its lane has to go on without it.
    Early(Failure),
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
        let mut words: Vec<&'static str> = admissions.iter().map(|admission| word(*admission)).collect();
        let mut places: Vec<usize> = (0..words.len()).filter(|place| admissions[*place] == Admission::Fresh).collect();
        match self.pass(&mut transaction, arrivals, &mut places, &mut words).await {
            Ok(Ok(())) => {}
            Ok(Err(stumble)) => return Trial::Failed(stumble),
            Err(error) => return Trial::Trouble(error),
        }
        let mut after_commit = None;
        if !places.is_empty() {
            let messages: Vec<&Message> = places.iter().map(|place| arrivals[*place].message).collect();
            let call = Call {
                messages: &messages,
                connection: &mut *transaction,
                attempt,
                database: &self.database,
                group: &self.group,
                after_commit: &mut after_commit,
            };
            if let Err(Stumble { at, failure }) = self.work.apply(call).await {
                // Alone: who knows what of several it was that was done before.
                if arrivals.len() == 1 && is_already_done(&failure) {
                    return Trial::Settled(vec!["duplicate"]);
                }
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
        if words.contains(&"parked") {
            self.wake_for_letters();
        }
        Trial::Settled(words)
    }

    /// Asks the gate about the fresh messages at `places`, and leaves there those that are to be applied. What is stale
    /// is parked here and now: its id is taken charge of, and nobody waits for it.
    async fn pass(
        &self,
        connection: &mut D::Connection,
        arrivals: &[Arrival<'_>],
        places: &mut Vec<usize>,
        words: &mut [&'static str],
    ) -> Result<Result<(), Stumble>> {
        let Some(gate) = self.gate.as_deref().filter(|_| !places.is_empty()) else { return Ok(Ok(())) };
        let messages: Vec<&Message> = places.iter().map(|place| arrivals[*place].message).collect();
        let passages = gate.pass(&self.database, connection, &self.group, &messages).await?;
        let mut applied = Vec::with_capacity(places.len());
        for (place, passage) in places.iter().copied().zip(passages) {
            let message = arrivals[place].message;
            match (passage, passage.failure(message)) {
                (Passage::Early { .. }, Some(failure)) => return Ok(Err(Stumble { at: Some(place), failure })),
                (Passage::Stale { .. }, Some(failure)) => {
                    let parking = Parking { attempts: 1, failure: &failure, hold: Hold::Nothing };
                    self.write_letter(connection, arrivals[place], parking).await?;
                    tracing::warn!(message_id = %message.id, %failure, "parked; nobody waits for it");
                    words[place] = "parked";
                }
                (Passage::Duplicate, _) => words[place] = "duplicate",
                _ => applied.push(place),
            }
        }
        *places = applied;
        Ok(Ok(()))
    }

    async fn admit(&self, connection: &mut D::Connection, arrivals: &[Arrival<'_>]) -> Result<Vec<Admission>> {
        if self.idempotence == Idempotence::Handler {
            let messages: Vec<_> = arrivals.iter().map(|arrival| self.uncompared(arrival.message)).collect();
            let arrivals = messages.iter().zip(arrivals);
            let arrivals: Vec<_> =
                arrivals.map(|(message, Arrival { origin, .. })| Arrival { message, origin: *origin }).collect();
            return self.database.admit_batch(connection, &self.group, &arrivals).await;
        }
        match arrivals {
            // A statement less, and the usual case where messages come one by one.
            [Arrival { message, origin }] => {
                Ok(vec![self.database.admit(connection, &self.group, message, *origin).await?])
            }
            several => self.database.admit_batch(connection, &self.group, several).await,
        }
    }

    /// The message as one whose id is not compared: only its key is looked at.
    fn uncompared(&self, message: &Message) -> Message {
        message.clone().with_mode(Mode::AtLeastOnce)
    }

    /// Tries one message until it has taken effect, is known to have, or is parked; then acknowledges it. Returns
    /// early, giving the delivery back, when `stop` is cancelled; and hands it back if it turns out to wait for
    /// predecessors, which may be behind it in its lane.
    pub(super) async fn settle_apart(&self, apart: Apart, stop: &CancellationToken) -> Option<Apart> {
        let (message, position, acknowledge) = apart.delivery.into_parts();
        let settled = match &message {
            Ok(message) => self.settle_message(message, position, apart.failed, stop).await,
            Err(error) => self.settle_unreadable(error, position, stop).await,
        };
        match settled {
            Some(End::Early(failure)) => {
                return Some(Apart { delivery: Delivery::new(message, position, acknowledge), failed: Some(failure) });
            }
            Some(End::Settled(outcome)) => self.acknowledge(acknowledge, outcome).await,
            Some(End::Refused(delay)) => {
                metrics::counter!("landfall_handled_total", "outcome" => "refused").increment(1);
                if let Err(error) = acknowledge.nack(delay).await {
                    tracing::warn!(%error, "not given back; the broker delivers it again by itself");
                }
            }
            None => {}
        }
        None
    }

    /// `failed` is how its first try ended, if there was one.
    async fn settle_message(
        &self,
        message: &Message,
        position: Position,
        mut failed: Option<Failure>,
        stop: &CancellationToken,
    ) -> Option<End> {
        let (mut tally, mut trouble) = (Tally::default(), 0);
        let has_lane = failed.as_ref().is_none_or(|failure| self.early(failure).is_none());
        let arrived = Instant::now();
        let arrival = Arrival { message, origin: Some(position) };
        loop {
            if let Some(failure) = failed.take() {
                trouble = 0;
                let pause = match self.early(&failure) {
                    Some(Early::Refuse(delay)) => return Some(End::Refused(delay)),
                    Some(Early::Park) => None,
                    Some(Early::Wait(at_most)) => {
                        let left = at_most.saturating_sub(arrived.elapsed());
                        tally.pause_after(&failure, self.backoff).map(|p| p.min(left)).filter(|_| !left.is_zero())
                    }
                    None => tally.pause_after(&failure, self.backoff),
                };
                let Some(pause) = pause else {
                    return self.park(arrival, tally.failures.max(1), &failure, stop).await.map(End::Settled);
                };
                let failures = tally.failures;
                tracing::warn!(message_id = %message.id, %failure, failures, ?pause, "handler failed; trying again");
                if !pause_unless_stopped(pause, stop).await {
                    return None;
                }
            }
            let permit = self.running.acquire().await.ok()?;
            let trial = self.transact(&[arrival], tally.failures + 1).await;
            drop(permit);
            match trial {
                Trial::Settled(outcomes) => return outcomes.first().copied().map(End::Settled),
                Trial::Failed(Stumble { failure, .. }) if has_lane && self.early(&failure).is_some() => {
                    return Some(End::Early(failure));
                }
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
        let mut transaction = self.database.begin().await?;
        let admission = self.admit(&mut transaction, &[arrival]).await?.first().copied();
        match admission.unwrap_or(Admission::Fresh) {
            Admission::Duplicate => Ok("duplicate"),
            Admission::Held => self.database.commit(transaction).await.map(|()| "held"),
            Admission::Fresh => {
                let parking = Parking { attempts, failure, hold: self.hold(failure) };
                self.write_letter(&mut transaction, arrival, parking).await?;
                self.database.commit(transaction).await?;
                self.wake_for_letters();
                metrics::counter!("landfall_dlq_in_total").increment(1);
                Ok("parked")
            }
        }
    }

    /// Into the table, and to the topic of letters in the same transaction.
    async fn write_letter(
        &self,
        connection: &mut D::Connection,
        arrival: Arrival<'_>,
        parking: Parking<'_>,
    ) -> Result<()> {
        let Arrival { message, origin } = arrival;
        self.database.park(connection, &self.group, message, origin, parking).await?;
        if let Some(letters) = &self.letters {
            let letter = letter(arrival, letters.topic().clone(), parking.attempts, parking.failure);
            letters.send(&self.database, connection, letter).await?;
        }
        Ok(())
    }

    fn wake_for_letters(&self) {
        if let Some(letters) = &self.letters {
            letters.wake(&self.database);
        }
    }

    /// What is to happen to a message that failed because it came too early.
    pub(super) fn early(&self, failure: &Failure) -> Option<Early> {
        let is_early = failure.code == ErrorCode::OUT_OF_ORDER && failure.verdict == Verdict::Wait;
        self.gate.as_deref().filter(|_| is_early)?.early()
    }

    /// A message that came too early must not keep away what it is missing.
    fn hold(&self, failure: &Failure) -> Hold {
        let waits_for_nobody = self.order == Order::Unordered || failure.code == ErrorCode::OUT_OF_ORDER;
        if waits_for_nobody { Hold::Nothing } else { Hold::Key }
    }

    /// What stands in the broker cannot be a message: a dead letter says where it stands. Its id is made from the
    /// place, so that a redelivery finds it again.
    async fn settle_unreadable(&self, error: &Error, position: Position, stop: &CancellationToken) -> Option<End> {
        let id = MessageId::of_place(&self.topic, position);
        let message = Message::new(self.topic.clone(), "").with_id(id);
        let arrival = Arrival { message: &message, origin: Some(position) };
        self.park(arrival, 1, &Failure::park(ErrorCode::VALIDATION, error), stop).await.map(End::Settled)
    }

    pub(super) async fn acknowledge(&self, acknowledge: Box<dyn Acknowledge>, outcome: &'static str) {
        metrics::counter!("landfall_handled_total", "outcome" => outcome).increment(1);
        fail::fail_point!("consume.after-commit");
        if let Err(error) = acknowledge.ack().await {
            tracing::warn!(%error, "not acknowledged; the message comes again and the inbox turns it away");
        }
    }

    pub(super) fn pause_for_database(&self, error: &Error, trouble: u32) -> Duration {
        let pause = endless(self.backoff, trouble);
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
pub(super) fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Conflict)
}

fn word(admission: Admission) -> &'static str {
    match admission {
        Admission::Fresh => "effect",
        Admission::Duplicate => "duplicate",
        Admission::Held => "held",
    }
}
