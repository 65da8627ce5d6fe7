//! One transaction for one message or for several.

use std::sync::Arc;
use std::time::Duration;

use landfall_core::{
    Acknowledge, Admission, Arrival, Backoff, Database, Error, ErrorKind, Failure, GroupName, Hold, Inbox, Message,
    Mode, Parking, Result, TopicName,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::early::Waiting;
use super::front::FrontDoor;
use super::gate::{Gate, Passage};
use super::letter_topic::Letters;
use super::once::is_already_done;
use super::options::{Idempotence, Order};
use super::retry_lane::RetryLane;
use super::retry_topic::RetryTopic;
use super::tally::endless;
use super::work::{Call, Stumble, Work};
use crate::patience::Patience;

/// Everything a try needs, shared by all lanes and the redrive.
pub(super) struct Attempts<D: Database, W> {
    pub(super) database: D,
    pub(super) topic: TopicName,
    pub(super) group: GroupName,
    pub(super) work: W,
    pub(super) backoff: Backoff,
    pub(super) retry_lane: RetryLane,
    /// Shorter pauses are not worth the way to the lane and back.
    pub(super) lane_after: Duration,
    /// There if the lane is a topic.
    pub(super) retry_topic: Option<RetryTopic>,
    pub(super) order: Order,
    pub(super) idempotence: Idempotence,
    /// Checks numbers besides ids, where that is asked for.
    pub(super) gate: Option<Box<dyn Gate<D>>>,
    /// Who waits for what precedes it, where numbers are checked.
    pub(super) waiting: Waiting,
    /// Where dead letters go besides the table, where that is asked for.
    pub(super) letters: Option<Box<dyn Letters<D>>>,
    /// Knows most copies without a transaction, where that is asked for.
    pub(super) front: Option<Arc<dyn FrontDoor<D>>>,
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
        let mut words: Vec<&'static str> = admissions.iter().map(|admission| word(*admission)).collect();
        let mut places: Vec<usize> = (0..words.len()).filter(|place| admissions[*place] == Admission::Fresh).collect();
        match self.pass(&mut transaction, arrivals, &mut places, &mut words).await {
            Ok(Ok(())) => {}
            Ok(Err(stumble)) => return Trial::Failed(stumble),
            Err(error) => return Trial::Trouble(error),
        }
        let mut after_commit = None;
        if !places.is_empty() {
            fail::fail_point!("consume.before-handler");
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
                    return self.was_there(transaction, arrivals).await;
                }
                return Trial::Failed(Stumble { at: at.map(|at| places[at]), failure });
            }
            fail::fail_point!("consume.after-handler");
        }
        if admissions.iter().all(|admission| *admission == Admission::Duplicate) {
            return self.settled_before(transaction, words).await;
        }
        let has_row = |(arrival, admission): (&Arrival<'_>, &Admission)| {
            *admission == Admission::Fresh && arrival.message.mode.is_deduplicated()
        };
        let committed = match self.idempotence == Idempotence::Inbox && arrivals.iter().zip(&admissions).any(has_row) {
            true => self.database.commit(transaction).await,
            // Without a row in the inbox it may be that nothing was changed, because of what others did.
            false => self.database.commit_seen(transaction).await,
        };
        match committed {
            Ok(()) => {}
            Err(error) if is_refusal(&error) => {
                return Trial::Failed(Stumble { at: None, failure: Failure::retry(error) });
            }
            Err(error) => return Trial::Trouble(error),
        }
        if let Some(after_commit) = after_commit {
            after_commit();
        }
        self.tell_those_who_wait(places.iter().map(|place| arrivals[*place].message));
        if words.contains(&"parked") {
            self.wake_for_letters();
        }
        Trial::Settled(words)
    }

    /// All of it was done by others: nothing to commit, and nothing to acknowledge before what they did is safe.
    async fn settled_before(&self, transaction: D::Transaction, words: Vec<&'static str>) -> Trial {
        match self.database.flush(transaction).await {
            Ok(()) => Trial::Settled(words),
            Err(error) => Trial::Trouble(error),
        }
    }

    /// Its effect was there: what the handler did is taken back. Its number counts all the same, where numbers are checked:
    /// its successor waits for it.
    async fn was_there(&self, transaction: D::Transaction, arrivals: &[Arrival<'_>]) -> Trial {
        let mut words = vec!["duplicate"; arrivals.len()];
        let counted = async {
            self.database.flush(transaction).await?;
            if self.gate.is_none() {
                return Ok(());
            }
            let mut transaction = self.database.begin().await?;
            let admissions = self.admit(&mut transaction, arrivals).await?;
            let mut places: Vec<usize> =
                (0..arrivals.len()).filter(|place| admissions[*place] == Admission::Fresh).collect();
            // What the numbers say of it was said before.
            let _ = self.pass(&mut transaction, arrivals, &mut places, &mut words).await?;
            self.database.commit(transaction).await
        };
        match counted.await {
            Ok(()) => {
                self.tell_those_who_wait(arrivals.iter().map(|arrival| arrival.message));
                Trial::Settled(vec!["duplicate"; arrivals.len()])
            }
            Err(error) => Trial::Trouble(error),
        }
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
        let passages = Patience::USUAL.with(gate.pass(&self.database, connection, &self.group, &messages)).await?;
        let mut applied = Vec::with_capacity(places.len());
        for (place, passage) in places.iter().copied().zip(passages) {
            let message = arrivals[place].message;
            match (passage, passage.failure(message)) {
                (Passage::Early { .. }, Some(failure)) => return Ok(Err(Stumble { at: Some(place), failure })),
                (Passage::Stale { .. }, Some(failure)) => {
                    let parking = Parking { attempts: 1, failure: &failure, hold: Hold::Nothing, again: None };
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

    pub(super) async fn admit(
        &self,
        connection: &mut D::Connection,
        arrivals: &[Arrival<'_>],
    ) -> Result<Vec<Admission>> {
        if self.idempotence == Idempotence::Handler {
            let messages: Vec<_> = arrivals.iter().map(|arrival| self.uncompared(arrival.message)).collect();
            let arrivals = messages.iter().zip(arrivals);
            let arrivals: Vec<_> =
                arrivals.map(|(message, Arrival { origin, .. })| Arrival { message, origin: *origin }).collect();
            return Patience::USUAL.with(self.database.admit_batch(connection, &self.group, &arrivals)).await;
        }
        match arrivals {
            // A statement less, and the usual case where messages come one by one.
            [Arrival { message, origin }] => {
                let admission = self.database.admit(connection, &self.group, message, *origin);
                Ok(vec![Patience::USUAL.with(admission).await?])
            }
            several => Patience::USUAL.with(self.database.admit_batch(connection, &self.group, several)).await,
        }
    }

    /// The message as one whose id is not compared: only its key is looked at.
    fn uncompared(&self, message: &Message) -> Message {
        message.clone().with_mode(Mode::AtLeastOnce)
    }

    /// Their numbers are reached: whoever waited for that may be next.
    pub(super) fn tell_those_who_wait<'a>(&self, applied: impl Iterator<Item = &'a Message>) {
        if self.gate.is_some() {
            applied.for_each(|message| self.waiting.reached(message));
        }
    }

    pub(super) async fn acknowledge(&self, acknowledge: Box<dyn Acknowledge>, outcome: &'static str) {
        metrics::counter!("landfall_handled_total", "outcome" => outcome).increment(1);
        fail::fail_point!("consume.after-commit");
        if let Err(error) = acknowledge.ack().await {
            tracing::warn!(%error, "not acknowledged; the message comes again and the inbox turns it away");
        }
        fail::fail_point!("consume.after-ack");
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
