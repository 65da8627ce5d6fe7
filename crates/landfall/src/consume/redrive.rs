//! Drains delayed messages that are due, and redriven dead letters, through the same handler: per key the oldest first,
//! then those that waited behind it, until live traffic of the key may pass again.
//!
//! Several keys are drained at once, each by one worker at a time: the database hands out no letter whose predecessor
//! is open. A letter that fails is delayed, or rests for a while, and holds up nobody but its own key. What a person
//! redrove begins to count anew, which is kept here and not in the database.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use landfall_core::{Arrival, DeadLetterId, Failure, Inbox, Message, RedriveItem, Result, Setback, Verdict};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::attempt::{Attempts, is_refusal, pause_unless_stopped};
use super::gate::Passage;
use super::once::is_already_done;
use super::options::Options;
use super::tally::{LONGEST_RETRY_AFTER, Tally};
use super::work::{Call, Stumble, Work};
use crate::patience::Patience;

/// Works until `stop`, with few workers, so that a redrive is never a second storm.
pub(super) async fn drain<D: Inbox, W: Work<D>>(
    attempts: Arc<Attempts<D, W>>,
    options: Options,
    stop: CancellationToken,
) {
    let resting = Arc::new(Resting::default());
    let mut workers = JoinSet::new();
    for _ in 0..options.redrive_concurrency.max(1) {
        workers.spawn(work(attempts.clone(), resting.clone(), options.redrive_poll, stop.clone()));
    }
    workers.join_all().await;
}

async fn work<D: Inbox, W: Work<D>>(
    attempts: Arc<Attempts<D, W>>,
    resting: Arc<Resting>,
    poll: Duration,
    stop: CancellationToken,
) {
    while !stop.is_cancelled() {
        let pause = match attempts.redrive_next(&resting).await {
            Ok(true) => continue,
            Ok(false) => resting.shortest().map_or(poll, |rest| rest.min(poll)),
            Err(error) => {
                tracing::warn!(%error, "dead letters cannot be worked on; waiting");
                poll
            }
        };
        pause_unless_stopped(pause, &stop).await;
    }
}

/// Letters that failed since they were redriven, how often, and until when they are left alone.
#[derive(Debug, Default)]
struct Resting(Mutex<HashMap<DeadLetterId, (Tally, Instant)>>);

impl Resting {
    fn now(&self) -> Vec<DeadLetterId> {
        let now = Instant::now();
        self.letters().iter().filter(|(_, (_, until))| *until > now).map(|(id, _)| *id).collect()
    }

    fn rests(&self, id: DeadLetterId) -> bool {
        self.letters().get(&id).is_some_and(|(_, until)| *until > Instant::now())
    }

    /// How long until the first of them may be tried again.
    fn shortest(&self) -> Option<Duration> {
        let now = Instant::now();
        self.letters()
            .values()
            .map(|(_, until)| until.saturating_duration_since(now))
            .filter(|rest| !rest.is_zero())
            .min()
    }

    /// What is counted of it. A person's redrive gives it all its tries again.
    fn tally(&self, item: &RedriveItem) -> Tally {
        let begun = Tally::after(if item.redrives == 0 { item.attempts } else { 0 });
        self.letters().get(&item.id).map_or(begun, |(tally, _)| *tally)
    }

    fn rest(&self, id: DeadLetterId, tally: Tally, delay: Duration) {
        self.letters().insert(id, (tally, Instant::now() + delay));
    }

    fn forget(&self, id: DeadLetterId) {
        self.letters().remove(&id);
    }

    fn letters(&self) -> MutexGuard<'_, HashMap<DeadLetterId, (Tally, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Inbox, W: Work<D>> Attempts<D, W> {
    /// Whether there was one to handle.
    async fn redrive_next(&self, resting: &Resting) -> Result<bool> {
        let mut transaction = self.database.begin().await?;
        let resting_now = resting.now();
        let next = self.database.next_redriven(&mut transaction, &self.group, &resting_now);
        let Some(item) = Patience::USUAL.with(next).await? else { return Ok(false) };
        if resting.rests(item.id) {
            // It failed in another worker's hands while this one asked, who is putting it aside.
            return Ok(true);
        }
        let passage = self.passage_of(&mut transaction, &item.message).await?;
        if let Some(failure) = passage.failure(&item.message) {
            let failure = Failure { verdict: Verdict::Park, ..failure };
            return self.failed_again(&item, failure, Some(transaction), resting).await;
        }
        let mut after_commit = None;
        if passage == Passage::Apply {
            let call = Call {
                messages: &[&item.message],
                connection: &mut *transaction,
                attempt: attempts_of(&item, resting.tally(&item).tries) + 1,
                database: &self.database,
                group: &self.group,
                after_commit: &mut after_commit,
            };
            if let Err(Stumble { failure, .. }) = self.work.apply(call).await {
                if is_already_done(&failure) {
                    return self.done_before(&item, transaction, resting).await;
                }
                return self.failed_again(&item, failure, Some(transaction), resting).await;
            }
        }
        match Patience::USUAL.with(self.database.complete_redriven(&mut transaction, &item)).await {
            // A handler that swallowed an error has left a transaction behind that is none any more.
            Err(error) if is_refusal(&error) => {
                return self.failed_again(&item, Failure::retry(error), Some(transaction), resting).await;
            }
            outcome => outcome?,
        }
        fail::fail_point!("redrive.before-commit");
        match self.database.commit(transaction).await {
            Err(error) if is_refusal(&error) => {
                return self.failed_again(&item, Failure::retry(error), None, resting).await;
            }
            outcome => outcome?,
        }
        if let Some(after_commit) = after_commit {
            after_commit();
        }
        self.tell_those_who_wait(std::iter::once(&item.message));
        resting.forget(item.id);
        metrics::counter!("landfall_redrive_total", "outcome" => "effect").increment(1);
        tracing::info!(message_id = %item.message.id, dead_letter = item.id, "handled after it was put aside");
        Ok(true)
    }

    /// Its effect was there: what the handler did is taken back, and the letter is done.
    async fn done_before(&self, item: &RedriveItem, transaction: D::Transaction, resting: &Resting) -> Result<bool> {
        self.database.flush(transaction).await?;
        let mut transaction = self.database.begin().await?;
        // Its number counts all the same: its successor waits for it.
        self.passage_of(&mut transaction, &item.message).await?;
        Patience::USUAL.with(self.database.complete_redriven(&mut transaction, item)).await?;
        self.database.commit(transaction).await?;
        self.tell_those_who_wait(std::iter::once(&item.message));
        resting.forget(item.id);
        metrics::counter!("landfall_redrive_total", "outcome" => "duplicate").increment(1);
        Ok(true)
    }

    /// What the numbers say of a letter, where they are checked.
    async fn passage_of(&self, connection: &mut D::Connection, message: &Message) -> Result<Passage> {
        let Some(gate) = self.gate.as_deref() else { return Ok(Passage::Apply) };
        let passages = Patience::USUAL.with(gate.pass(&self.database, connection, &self.group, &[message])).await?;
        Ok(passages.first().copied().unwrap_or(Passage::Apply))
    }

    /// Lets it rest, delays it, or parks it again. `transaction` is rolled back in between: whichever worker is handed the
    /// letter from then on sees that it rests, and nobody waits for its lock.
    async fn failed_again(
        &self,
        item: &RedriveItem,
        failure: Failure,
        transaction: Option<D::Transaction>,
        resting: &Resting,
    ) -> Result<bool> {
        let mut tally = resting.tally(item);
        let pause = tally.pause_after(&failure, self.backoff);
        let rests_here = item.redrives > 0 || !failure.spends_attempt();
        let rest = pause.unwrap_or(self.backoff.cap);
        if pause.is_some() && rests_here {
            resting.rest(item.id, tally, rest);
            return Ok(true);
        }
        // Nobody is handed it before it is put aside, however long that takes.
        resting.rest(item.id, tally, LONGEST_RETRY_AFTER);
        drop(transaction);
        let attempts = attempts_of(item, tally.failures);
        let setback = Setback { attempts, failure: &failure, hold: self.hold(&failure), again: pause };
        if let Err(error) = self.put_aside_again(item, setback).await {
            resting.rest(item.id, tally, rest);
            return Err(error);
        }
        resting.forget(item.id);
        Ok(true)
    }

    async fn put_aside_again(&self, item: &RedriveItem, setback: Setback<'_>) -> Result<()> {
        let Setback { attempts, failure, again, .. } = setback;
        let mut transaction = self.database.begin().await?;
        if !Patience::USUAL.with(self.database.park_redriven(&mut transaction, item, setback)).await? {
            // Another worker was handed it before it rested here, and has put it aside.
            return Ok(());
        }
        if again.is_none() {
            let arrival = Arrival { message: &item.message, origin: item.origin };
            self.send_letter(&mut transaction, arrival, attempts, failure).await?;
        }
        fail::fail_point!("redrive.before-park");
        self.database.commit(transaction).await?;
        let (message_id, dead_letter) = (item.message.id, item.id);
        let outcome = match again {
            Some(pause) => {
                tracing::warn!(%message_id, dead_letter, %failure, attempts, ?pause, "delayed again");
                "delayed"
            }
            None => {
                tracing::error!(%message_id, dead_letter, %failure, attempts, "parked again");
                self.wake_for_letters();
                "parked"
            }
        };
        metrics::counter!("landfall_redrive_total", "outcome" => outcome).increment(1);
        Ok(())
    }
}

/// All tries of a letter, of which `counted` are in its tally.
fn attempts_of(item: &RedriveItem, counted: u32) -> u32 {
    if item.redrives == 0 { counted } else { item.attempts.saturating_add(counted) }
}
