//! Wraps a relay's outbox queue: reports the epochs under which it settles, and applies planted bugs.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use landfall::{
    Claim, CompetingQueue, Decision, Epoch, Lease, Message, OutboxEntry, OutboxQueue, Result, RowId, Settlement, Shard,
};

use super::planted_bug::SoakBug;
use crate::history::Event;

pub struct ObservedQueue<D> {
    pub queue: D,
    /// The number of this relay.
    pub number: u32,
    pub planted_bug: Option<SoakBug>,
    /// The epochs that were already reported.
    reported: Mutex<HashSet<(Shard, Epoch)>>,
    /// The last settled row, for the planted cursor bug.
    position: AtomicI64,
}

impl<D> ObservedQueue<D> {
    pub fn new(queue: D, number: u32, planted_bug: Option<SoakBug>) -> Self {
        Self { queue, number, planted_bug, reported: Mutex::default(), position: AtomicI64::new(0) }
    }

    /// Reports each epoch once. An epoch must belong to one relay; the database has accepted it, so it was valid.
    fn report(&self, leases: &[Lease], settlements: &[Settlement], changed: &[RowId]) {
        for settlement in settlements.iter().filter(|settlement| changed.contains(&settlement.row)) {
            let name = settlement.shard.lease_name();
            let Some(lease) = leases.iter().find(|lease| lease.name == name) else { continue };
            let is_new =
                self.reported.lock().unwrap_or_else(PoisonError::into_inner).insert((settlement.shard, lease.epoch));
            if is_new {
                Event::Settled { shard: settlement.shard.0, epoch: lease.epoch }.print();
            }
        }
    }
}

#[async_trait]
impl<D: OutboxQueue> OutboxQueue for ObservedQueue<D> {
    async fn append(&self, messages: &[Message]) -> Result<()> {
        self.queue.append(messages).await
    }

    fn shards(&self) -> u16 {
        self.queue.shards()
    }

    async fn next(&self, leases: &[Lease], limit: usize) -> Result<Vec<OutboxEntry>> {
        let mut entries = self.queue.next(leases, limit).await?;
        match self.planted_bug {
            Some(SoakBug::SplitRows) => {
                entries.retain(|entry| entry.row % SoakBug::SPLIT == i64::from(self.number) % SoakBug::SPLIT);
            }
            Some(SoakBug::RememberPosition) => {
                let position = self.position.load(Ordering::SeqCst);
                entries.retain(|entry| entry.row > position);
            }
            _ => {}
        }
        Ok(entries)
    }

    async fn settle(&self, leases: &[Lease], settlements: &[Settlement]) -> Result<Vec<RowId>> {
        let settlements = with_bug(self.planted_bug, settlements);
        let changed = self.queue.settle(leases, &settlements).await?;
        self.report(leases, &settlements, &changed);
        self.position.fetch_max(changed.iter().copied().max().unwrap_or_default(), Ordering::SeqCst);
        Ok(changed)
    }

    async fn wait(&self, at_most: Duration) {
        self.queue.wait(at_most).await;
    }
}

#[async_trait]
impl<D: CompetingQueue> CompetingQueue for ObservedQueue<D> {
    async fn claim(&self, limit: usize) -> Result<Box<dyn Claim>> {
        Ok(Box::new(ObservedClaim { claim: self.queue.claim(limit).await?, planted_bug: self.planted_bug }))
    }
}

struct ObservedClaim {
    claim: Box<dyn Claim>,
    planted_bug: Option<SoakBug>,
}

#[async_trait]
impl Claim for ObservedClaim {
    fn take_entries(&mut self) -> Vec<OutboxEntry> {
        self.claim.take_entries()
    }

    async fn settle(self: Box<Self>, settlements: &[Settlement]) -> Result<()> {
        self.claim.settle(&with_bug(self.planted_bug, settlements)).await
    }
}

/// The settlements, changed if that bug is planted.
fn with_bug(planted_bug: Option<SoakBug>, settlements: &[Settlement]) -> Vec<Settlement> {
    let mut settlements = settlements.to_vec();
    if planted_bug == Some(SoakBug::SettleWhatFailed) {
        for settlement in &mut settlements {
            if matches!(settlement.decision, Decision::Retry { .. }) {
                settlement.decision = Decision::Published;
            }
        }
    }
    settlements
}

impl<D> std::fmt::Debug for ObservedQueue<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObservedQueue")
            .field("number", &self.number)
            .field("plant", &self.planted_bug)
            .finish_non_exhaustive()
    }
}
