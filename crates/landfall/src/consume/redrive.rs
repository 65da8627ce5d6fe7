//! Drains redriven dead letters through the same handler: per key the oldest first, then those that waited behind it,
//! until live traffic of the key may pass again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use landfall_core::{DeadLetterId, Failure, Inbox, RedriveItem, Result, Verdict};
use tokio_util::sync::CancellationToken;

use super::attempt::{Attempts, pause_unless_stopped};
use super::handler::Handler;

/// Works until `stop`; one dead letter at a time, so that a redrive is never a second storm.
pub(super) async fn drain<D: Inbox, H: Handler<D>>(
    attempts: Arc<Attempts<D, H>>,
    poll: Duration,
    stop: CancellationToken,
) {
    let mut failures = HashMap::new();
    loop {
        let pause = match attempts.redrive_next(&mut failures).await {
            Ok(Step::Moved) if !stop.is_cancelled() => continue,
            Ok(Step::Again(delay)) => delay,
            Ok(_) => poll,
            Err(error) => {
                tracing::warn!(%error, "dead letters cannot be read; waiting");
                poll
            }
        };
        if !pause_unless_stopped(pause, &stop).await {
            return;
        }
    }
}

pub(super) enum Step {
    Moved,
    Nothing,
    /// It failed and is tried again after this long; the others wait with it.
    Again(Duration),
}

impl<D: Inbox, H: Handler<D>> Attempts<D, H> {
    async fn redrive_next(&self, failures: &mut HashMap<DeadLetterId, u32>) -> Result<Step> {
        let mut transaction = self.database.begin().await?;
        let Some(item) = self.database.next_redriven(&mut transaction, &self.group).await? else {
            return Ok(Step::Nothing);
        };
        let mut after_commit = None;
        let attempt = item.attempts + failures.get(&item.id).copied().unwrap_or(0) + 1;
        match self.call(&mut transaction, &item.message, attempt, &mut after_commit).await {
            Ok(()) => {
                self.database.complete_redriven(&mut transaction, &item).await?;
                fail::fail_point!("redrive.before-commit");
                self.database.commit(transaction).await?;
                if let Some(after_commit) = after_commit {
                    after_commit();
                }
                failures.remove(&item.id);
                metrics::counter!("landfall_redrive_total", "outcome" => "effect").increment(1);
                tracing::info!(message_id = %item.message.id, dead_letter = item.id, "redriven");
                Ok(Step::Moved)
            }
            Err(failure) => {
                drop(transaction);
                self.redrive_failed(&item, &failure, failures).await
            }
        }
    }

    async fn redrive_failed(
        &self,
        item: &RedriveItem,
        failure: &Failure,
        failures: &mut HashMap<DeadLetterId, u32>,
    ) -> Result<Step> {
        let count = failures.entry(item.id).or_insert(0);
        *count += 1;
        if let (Verdict::Retry, Some(delay)) = (failure.verdict, self.backoff.delay_after(*count, rand::random())) {
            return Ok(Step::Again(delay));
        }
        let mut transaction = self.database.begin().await?;
        self.database.park_redriven(&mut transaction, item, failure).await?;
        self.database.commit(transaction).await?;
        failures.remove(&item.id);
        metrics::counter!("landfall_redrive_total", "outcome" => "parked").increment(1);
        tracing::error!(message_id = %item.message.id, dead_letter = item.id, %failure, "parked again");
        Ok(Step::Moved)
    }
}
