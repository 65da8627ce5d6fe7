//! Handles delayed messages that are due and redriven dead letters: per key the oldest first, then the messages that
//! waited behind it, until live traffic of the key may pass again.
//!
//! Several keys are drained concurrently, each by one worker at a time: the database returns no dead letter whose
//! predecessor is open. A dead letter that fails backs off, is delayed or is parked again, and blocks only its own key.

use std::sync::Arc;
use std::time::Duration;

use landfall_core::adapter::{Arrival, RedriveItem, Setback};
use landfall_core::{Backoff, Database, Failure, Inbox, Message, Result};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::backing_off::BackingOff;
use super::unreadable;
use super::writer::DeadLetterWriter;
use crate::call_deadline::CallDeadline;
use crate::consume::{
    Attempt, GroupInbox, Handled, Input, MAX_RETRY_AFTER, MessageTransaction, Options, TransactionError,
    sleep_unless_stopped,
};

/// Runs redriven and delayed messages of one group through its handler.
pub(crate) struct Redriver<D: Database> {
    transaction: Arc<MessageTransaction<D>>,
    dead_letters: Arc<DeadLetterWriter<D>>,
    backing_off: BackingOff,
    backoff: Backoff,
    poll: Duration,
    concurrency: usize,
}

impl<D: Inbox> Redriver<D> {
    pub(crate) fn new(
        transaction: Arc<MessageTransaction<D>>,
        dead_letters: Arc<DeadLetterWriter<D>>,
        options: &Options,
    ) -> Self {
        let Options { backoff, redrive_poll: poll, redrive_concurrency: concurrency, .. } = *options;
        Self { transaction, dead_letters, backing_off: BackingOff::default(), backoff, poll, concurrency }
    }

    /// Works until `stop` is cancelled. There are few workers, so that a large redrive does not overload the handler's
    /// dependencies.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let redriver = Arc::new(self);
        let mut workers = JoinSet::new();
        for _ in 0..redriver.concurrency {
            workers.spawn(redriver.clone().work(stop.clone()));
        }
        workers.join_all().await;
    }

    async fn work(self: Arc<Self>, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let pause = match self.handle_next().await {
                Ok(true) => continue,
                Ok(false) => self.backing_off.shortest().map_or(self.poll, |backoff| backoff.min(self.poll)),
                Err(error) => {
                    tracing::warn!(%error, "dead letters unavailable, backing off");
                    self.poll
                }
            };
            sleep_unless_stopped(pause, &stop).await;
        }
    }

    /// Handles the next dead letter; returns whether there was one.
    async fn handle_next(&self) -> Result<bool> {
        let GroupInbox { database, group, .. } = &self.transaction.inbox;
        let mut transaction = database.begin().await?;
        let backing_off = self.backing_off.current();
        let next = database.next_redriven(&mut transaction, group, &backing_off);
        let Some(item) = CallDeadline::STATEMENT.run(next).await? else { return Ok(false) };
        if self.backing_off.contains(item.id) {
            // It failed in another worker after this one had read which letters back off.
            return Ok(true);
        }
        if let Some(failure) = unreadable::refusal(&item.message) {
            let retry = self.back_off(&item, &failure);
            drop(transaction);
            return self.put_aside(&item, &failure, retry).await.map(|()| true);
        }
        let arrivals = [arrival(&item)];
        let input = Input { arrivals: &arrivals, dead_letter: Some(&item) };
        let calls = self.backing_off.count(&item).calls;
        let number = total_attempts(&item, calls).saturating_add(1);
        let attempt = Attempt { number, since_redrive: calls + 1, is_rehearsal: false };
        let result = match self.transaction.apply(&mut transaction, input, attempt).await {
            Ok(applied) => self.transaction.finish(transaction, input, applied).await,
            Err(TransactionError::Failed(failed)) => {
                let retry = self.back_off(&item, &failed.failure);
                // Rolled back only now: a worker that locks the row next finds it in backoff.
                drop(transaction);
                return self.put_aside(&item, &failed.failure, retry).await.map(|()| true);
            }
            Err(error) => Err(error),
        };
        match result {
            Ok(outcomes) => {
                self.backing_off.remove(item.id);
                let outcome = outcomes.first().copied().unwrap_or(Handled::Effect);
                count(&item, outcome);
                let (dead_letter, outcome) = (item.id, outcome.as_str());
                let Message { id: message_id, topic, key, .. } = &item.message;
                let key = key.as_ref().map(|key| key.as_str());
                tracing::info!(%message_id, %topic, key, %group, dead_letter, outcome, "dead letter handled");
                Ok(true)
            }
            Err(TransactionError::Failed(failed)) => {
                let retry = self.back_off(&item, &failed.failure);
                self.put_aside(&item, &failed.failure, retry).await.map(|()| true)
            }
            Err(TransactionError::Unreachable(error) | TransactionError::Database(error)) => Err(error),
        }
    }

    /// Counts the failed attempt and keeps every worker from the letter meanwhile.
    fn back_off(&self, item: &RedriveItem, failure: &Failure) -> Retry {
        let mut count = self.backing_off.count(item);
        let pause = count.pause_after(failure, self.backoff);
        let in_memory = item.redrives > 0 || !failure.spends_attempt();
        let retry = match pause {
            Some(pause) if in_memory => Retry::InMemory(pause),
            pause => Retry::InDatabase { again: pause, attempts: total_attempts(item, count.failures) },
        };
        // However long the database takes to store it, no worker must attempt it before.
        let backoff = if let Retry::InMemory(pause) = retry { pause } else { MAX_RETRY_AFTER };
        self.backing_off.insert(item.id, count, backoff);
        retry
    }

    /// Stores that a letter is delayed or parked again, unless its backoff is kept in memory.
    async fn put_aside(&self, item: &RedriveItem, failure: &Failure, retry: Retry) -> Result<()> {
        let Retry::InDatabase { again, attempts } = retry else { return Ok(()) };
        let setback = Setback { attempts, failure, hold: self.dead_letters.hold(failure), again };
        if let Err(error) = self.store_setback(item, setback).await {
            let count = self.backing_off.count(item);
            self.backing_off.insert(item.id, count, again.unwrap_or(self.backoff.cap));
            return Err(error);
        }
        self.backing_off.remove(item.id);
        Ok(())
    }

    async fn store_setback(&self, item: &RedriveItem, setback: Setback<'_>) -> Result<()> {
        let Setback { attempts, failure, again, .. } = setback;
        let database = &self.transaction.inbox.database;
        let mut transaction = database.begin().await?;
        if !CallDeadline::STATEMENT.run(database.park_redriven(&mut transaction, item, setback)).await? {
            // Another worker locked it before it was in backoff, and has stored its setback.
            return Ok(());
        }
        if again.is_none() {
            self.dead_letters.publish(&mut transaction, arrival(item), attempts, failure).await?;
        }
        fail::fail_point!("redrive.before-park");
        database.commit(transaction).await?;
        let (dead_letter, group) = (item.id, &self.transaction.inbox.group);
        let Message { id: message_id, topic, key, .. } = &item.message;
        let key = key.as_ref().map(|key| key.as_str());
        match again {
            Some(pause) => {
                tracing::warn!(
                    %message_id, %topic, key, %group, dead_letter, %failure, attempts, ?pause, "delayed again"
                );
                count(item, Handled::Delayed);
            }
            None => {
                tracing::error!(
                    %message_id, %topic, key, %group, dead_letter, %failure, attempts, "parked again"
                );
                self.dead_letters.wake_relay();
                if item.redrives == 0 {
                    metrics::counter!("landfall_dlq_in_total").increment(1);
                }
                count(item, Handled::Parked);
            }
        }
        Ok(())
    }
}

/// Where a dead letter that failed again waits.
#[derive(Debug, Clone, Copy)]
enum Retry {
    /// In this process: a manual redrive has its attempts in quick succession, and an uncounted failure writes nothing.
    InMemory(Duration),
    /// In the table: delayed until `again`, or parked.
    InDatabase { again: Option<Duration>, attempts: u32 },
}

fn arrival(item: &RedriveItem) -> Arrival<'_> {
    Arrival { message: &item.message, origin: item.origin }
}

/// All attempts of a dead letter, of which `counted` were made since its last manual redrive.
fn total_attempts(item: &RedriveItem, counted: u32) -> u32 {
    if item.redrives == 0 { counted } else { item.attempts.saturating_add(counted) }
}

/// Counts the outcome of a letter: as a redrive if an operator redrove it, else with live traffic, to which a delayed
/// message and one that waited behind another belong.
fn count(item: &RedriveItem, outcome: Handled) {
    let name = if item.redrives > 0 { "landfall_redrive_total" } else { "landfall_handled_total" };
    metrics::counter!(name, "outcome" => outcome.as_str()).increment(1);
}
