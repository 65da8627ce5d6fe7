//! Drains redriven dead letters through the same handler: per key the oldest first, then those that waited behind it,
//! until live traffic of the key may pass again.
//!
//! Several keys are drained at once, each by one worker at a time: the database hands out no letter whose predecessor
//! is open. A letter that fails rests for a while and holds up nobody but its own key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use landfall_core::{DeadLetterId, Failure, Inbox, RedriveItem, Result, Verdict};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::attempt::{Attempts, pause_unless_stopped};
use super::options::Options;
use super::work::{Call, Stumble, Work};

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
struct Resting(Mutex<HashMap<DeadLetterId, (u32, Instant)>>);

impl Resting {
    fn now(&self) -> Vec<DeadLetterId> {
        let now = Instant::now();
        self.letters().iter().filter(|(_, (_, until))| *until > now).map(|(id, _)| *id).collect()
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

    fn failures(&self, id: DeadLetterId) -> u32 {
        self.letters().get(&id).map_or(0, |(failures, _)| *failures)
    }

    fn rest(&self, id: DeadLetterId, failures: u32, delay: Duration) {
        self.letters().insert(id, (failures, Instant::now() + delay));
    }

    fn forget(&self, id: DeadLetterId) {
        self.letters().remove(&id);
    }

    fn letters(&self) -> MutexGuard<'_, HashMap<DeadLetterId, (u32, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Inbox, W: Work<D>> Attempts<D, W> {
    /// Whether there was one to handle.
    async fn redrive_next(&self, resting: &Resting) -> Result<bool> {
        let mut transaction = self.database.begin().await?;
        let Some(item) = self.database.next_redriven(&mut transaction, &self.group, &resting.now()).await? else {
            return Ok(false);
        };
        let mut after_commit = None;
        let attempt = item.attempts + resting.failures(item.id) + 1;
        let call = Call {
            messages: &[&item.message],
            connection: &mut *transaction,
            attempt,
            database: &self.database,
            after_commit: &mut after_commit,
        };
        if let Err(Stumble { failure, .. }) = self.work.apply(call).await {
            // Before the rollback, so that no other worker is handed the letter in between.
            if failure.verdict == Verdict::Wait {
                let rest = failure.retry_after.unwrap_or(self.backoff.cap);
                resting.rest(item.id, resting.failures(item.id), rest);
                return Ok(true);
            }
            let failures = resting.failures(item.id) + 1;
            let delay =
                self.backoff.delay_after(failures, rand::random()).filter(|_| failure.verdict == Verdict::Retry);
            resting.rest(item.id, failures, delay.unwrap_or(self.backoff.cap));
            drop(transaction);
            if delay.is_none() {
                self.park_again(&item, &failure).await?;
                resting.forget(item.id);
            }
            return Ok(true);
        }
        self.database.complete_redriven(&mut transaction, &item).await?;
        fail::fail_point!("redrive.before-commit");
        self.database.commit(transaction).await?;
        if let Some(after_commit) = after_commit {
            after_commit();
        }
        resting.forget(item.id);
        metrics::counter!("landfall_redrive_total", "outcome" => "effect").increment(1);
        tracing::info!(message_id = %item.message.id, dead_letter = item.id, "redriven");
        Ok(true)
    }

    async fn park_again(&self, item: &RedriveItem, failure: &Failure) -> Result<()> {
        let mut transaction = self.database.begin().await?;
        self.database.park_redriven(&mut transaction, item, failure).await?;
        self.database.commit(transaction).await?;
        metrics::counter!("landfall_redrive_total", "outcome" => "parked").increment(1);
        tracing::error!(message_id = %item.message.id, dead_letter = item.id, %failure, "parked again");
        Ok(())
    }
}
