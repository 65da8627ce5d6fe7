//! One pass of a relay that keeps order: read a batch of the leased shards, publish it, settle it under the leases.

use landfall_core::{FencedPublisher, Lease, Mode, OutboxQueue, Result, Settlement};

use super::keeper::{Held, Working};
use super::sender::{Progress, Publishable, Sender, Sent, Turn, fire_and_forget, report};
use crate::patience::Patience;

pub(super) struct Pass<'a> {
    pub(super) queue: &'a dyn OutboxQueue,
    pub(super) patience: Patience,
    pub(super) sender: Sender<'a>,
    pub(super) fenced: Option<&'a dyn FencedPublisher>,
    pub(super) held: Held,
    pub(super) working: Working,
}

impl Turn for Pass<'_> {
    async fn take(&self) -> Result<Progress> {
        // While this is held the keeper gives no shard away, so a shard changes hands between two passes.
        let _busy = self.working.lock().await;
        // Before the leases are looked at: whoever takes one of them over from here on silences this pass.
        if let Some(fenced) = self.fenced
            && let Err(error) = fenced.begin().await
        {
            return Ok(Progress::BrokerDown(error.to_string()));
        }
        let leases: Vec<_> = self.held.borrow().iter().filter(|lease| lease.is_live()).cloned().collect();
        self.run(&leases).await
    }
}

impl Pass<'_> {
    async fn run(&self, leases: &[Lease]) -> Result<Progress> {
        if leases.is_empty() {
            return Ok(Progress::Idle);
        }
        let entries = self.patience.with(self.queue.next(leases, self.sender.options.batch)).await?;
        if entries.is_empty() {
            return Ok(Progress::Idle);
        }
        fail::fail_point!("relay.after-claim");
        let (batch, unpublishable) = self.sender.sort(entries);
        if !unpublishable.is_empty() {
            // They are parked before anything else goes out: their successors must find the key held.
            self.settle(leases, unpublishable).await?;
            return Ok(Progress::Moved);
        }
        if !leases.iter().all(Lease::is_live) {
            // This process was paused, or the database was slow: somebody else may be at work on these rows.
            return Ok(Progress::Idle);
        }
        let batch = self.settle_fire_and_forget(leases, batch).await?;
        match self.sender.send(batch).await {
            Sent::BrokerDown(reason) => return Ok(Progress::BrokerDown(reason)),
            Sent::Decided(settlements) => self.settle(leases, settlements).await?,
        }
        fail::fail_point!("relay.after-settle");
        Ok(Progress::Moved)
    }

    /// What could not be removed is not sent.
    async fn settle_fire_and_forget(&self, leases: &[Lease], mut batch: Vec<Publishable>) -> Result<Vec<Publishable>> {
        let once = fire_and_forget(&batch);
        if !once.is_empty() {
            let removed = self.patience.with(self.queue.settle(leases, &once)).await?;
            batch.retain(|(entry, message)| message.mode != Mode::AtMostOnce || removed.contains(&entry.row));
        }
        Ok(batch)
    }

    async fn settle(&self, leases: &[Lease], settlements: Vec<Settlement>) -> Result<()> {
        report(&settlements);
        let changed = self.patience.with(self.queue.settle(leases, &settlements)).await?;
        if changed.len() < settlements.len() {
            let left = settlements.len() - changed.len();
            tracing::warn!(left, "another relay has taken over; these rows were left to it");
        }
        Ok(())
    }
}
