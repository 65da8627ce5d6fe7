//! One pass of an ordered relay: read a batch of the leased shards, publish it, settle it under the leases.

use landfall_core::adapter::{Decision, FencedPublisher, Lease, Settlement};
use landfall_core::{Mode, OutboxQueue, Result};

use super::publish::{
    BatchPublisher, Pass, Progress, Publishable, Published, at_most_once, count_parked, log_unpublishable,
};
use super::shard_leases::{HeldLeases, PassLock};
use crate::call_deadline::CallDeadline;

/// Reads, publishes and settles a batch of the shards that this relay leases.
pub(super) struct OrderedPass<'a> {
    pub(super) queue: &'a dyn OutboxQueue,
    pub(super) deadline: CallDeadline,
    pub(super) publisher: BatchPublisher<'a>,
    pub(super) fenced: Option<&'a dyn FencedPublisher>,
    pub(super) held: HeldLeases,
    pub(super) pass: PassLock,
}

impl Pass for OrderedPass<'_> {
    async fn run(&self) -> Result<Progress> {
        // While this is locked no shard is released: a shard changes hands between two passes.
        let _pass = self.pass.lock().await;
        // Before the leases are read: a relay that takes one of them over from now on fences this pass.
        if let Some(fenced) = self.fenced
            && let Err(error) = fenced.begin().await
        {
            return Ok(Progress::BrokerDown(error.to_string()));
        }
        let leases: Vec<_> = self.held.borrow().iter().filter(|lease| lease.is_live()).cloned().collect();
        self.publish_next(&leases).await
    }
}

impl OrderedPass<'_> {
    async fn publish_next(&self, leases: &[Lease]) -> Result<Progress> {
        if leases.is_empty() {
            return Ok(Progress::Idle);
        }
        let entries = self.deadline.run(self.queue.next(leases, self.publisher.options.batch)).await?;
        if entries.is_empty() {
            return Ok(Progress::Idle);
        }
        fail::fail_point!("relay.after-claim");
        let (batch, unpublishable) = self.publisher.check_front(entries);
        if !leases.iter().all(Lease::is_live) {
            // This process was paused, or the database was slow: another relay may work on these rows.
            return Ok(Progress::Idle);
        }
        let messages = batch.len() + unpublishable.len();
        let batch = self.remove_at_most_once(leases, batch).await?;
        let repeatable = batch.iter().filter(|(_, message)| message.mode != Mode::AtMostOnce).count();
        let mut settlements = match self.publisher.publish(batch).await {
            Published::BrokerDown(reason) => return Ok(Progress::BrokerDown(reason)),
            Published::Settled(settlements) => settlements,
        };
        // A dead letter holds its key. Parked before an unpublished predecessor, it would block that one too.
        let published = settlements.iter().filter(|settled| settled.decision == Decision::Published).count();
        if published == repeatable {
            log_unpublishable(&unpublishable);
            settlements.extend(unpublishable);
        }
        self.settle(leases, settlements).await?;
        fail::fail_point!("relay.after-settle");
        Ok(Progress::Moved(messages))
    }

    /// Removes at-most-once entries from the outbox. Entries that could not be removed are not published.
    async fn remove_at_most_once(&self, leases: &[Lease], mut batch: Vec<Publishable>) -> Result<Vec<Publishable>> {
        let once = at_most_once(&batch);
        if !once.is_empty() {
            let removed = self.deadline.run(self.queue.settle(leases, &once)).await?;
            batch.retain(|(entry, message)| message.mode != Mode::AtMostOnce || removed.contains(&entry.row));
        }
        Ok(batch)
    }

    async fn settle(&self, leases: &[Lease], settlements: Vec<Settlement>) -> Result<()> {
        let changed = self.deadline.run(self.queue.settle(leases, &settlements)).await?;
        count_parked(settlements.iter().filter(|settlement| changed.contains(&settlement.row)));
        if changed.len() < settlements.len() {
            let unsettled = settlements.len() - changed.len();
            tracing::warn!(unsettled, "lease lost; the relay that took over settles these rows");
        }
        Ok(())
    }
}
