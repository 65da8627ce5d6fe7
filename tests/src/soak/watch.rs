//! Stands between a relay and its outbox: tells under which epochs it settles, and holds the bugs that are planted.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use landfall::adapter::{Claim, Decision, Epoch, Lease, OutboxEntry, Settlement, Shard};
use landfall::{CompetingQueue, Message, OutboxQueue, Result, RowId};

use super::plant::SoakPlant;
use crate::history::Event;

pub struct Watched<D> {
    pub queue: D,
    /// Which relay this is.
    pub number: u32,
    pub plant: Option<SoakPlant>,
    /// What was told already.
    told: Mutex<HashSet<(Shard, Epoch)>>,
    /// The last row that was settled, for the bug that remembers it.
    position: AtomicI64,
}

impl<D> Watched<D> {
    pub fn new(queue: D, number: u32, plant: Option<SoakPlant>) -> Self {
        Self { queue, number, plant, told: Mutex::default(), position: AtomicI64::new(0) }
    }

    /// An epoch belongs to one relay. Told after the database has accepted it, so it was in force.
    fn tell(&self, leases: &[Lease], settlements: &[Settlement], changed: &[RowId]) {
        for settlement in settlements.iter().filter(|settlement| changed.contains(&settlement.row)) {
            let name = settlement.shard.lease_name();
            let Some(lease) = leases.iter().find(|lease| lease.name == name) else { continue };
            let is_new =
                self.told.lock().unwrap_or_else(PoisonError::into_inner).insert((settlement.shard, lease.epoch));
            if is_new {
                Event::Settled { shard: settlement.shard.0, epoch: lease.epoch }.say();
            }
        }
    }
}

#[async_trait]
impl<D: OutboxQueue> OutboxQueue for Watched<D> {
    async fn append(&self, messages: &[Message]) -> Result<()> {
        self.queue.append(messages).await
    }

    fn shards(&self) -> u16 {
        self.queue.shards()
    }

    async fn next(&self, leases: &[Lease], limit: usize) -> Result<Vec<OutboxEntry>> {
        let mut entries = self.queue.next(leases, limit).await?;
        match self.plant {
            Some(SoakPlant::SplitRows) => {
                entries.retain(|entry| entry.row % SoakPlant::SPLIT == i64::from(self.number) % SoakPlant::SPLIT);
            }
            Some(SoakPlant::RememberPosition) => {
                let position = self.position.load(Ordering::SeqCst);
                entries.retain(|entry| entry.row > position);
            }
            _ => {}
        }
        Ok(entries)
    }

    async fn settle(&self, leases: &[Lease], settlements: &[Settlement]) -> Result<Vec<RowId>> {
        let settlements = spoil(self.plant, settlements);
        let changed = self.queue.settle(leases, &settlements).await?;
        self.tell(leases, &settlements, &changed);
        self.position.fetch_max(changed.iter().copied().max().unwrap_or_default(), Ordering::SeqCst);
        Ok(changed)
    }

    async fn wait(&self, at_most: Duration) {
        self.queue.wait(at_most).await;
    }
}

#[async_trait]
impl<D: CompetingQueue> CompetingQueue for Watched<D> {
    async fn claim(&self, limit: usize) -> Result<Box<dyn Claim>> {
        Ok(Box::new(WatchedClaim { claim: self.queue.claim(limit).await?, plant: self.plant }))
    }
}

struct WatchedClaim {
    claim: Box<dyn Claim>,
    plant: Option<SoakPlant>,
}

#[async_trait]
impl Claim for WatchedClaim {
    fn take_entries(&mut self) -> Vec<OutboxEntry> {
        self.claim.take_entries()
    }

    async fn settle(self: Box<Self>, settlements: &[Settlement]) -> Result<()> {
        self.claim.settle(&spoil(self.plant, settlements)).await
    }
}

/// What is settled instead, if that bug is planted.
fn spoil(plant: Option<SoakPlant>, settlements: &[Settlement]) -> Vec<Settlement> {
    let mut settlements = settlements.to_vec();
    if plant == Some(SoakPlant::SettleWhatFailed) {
        for settlement in &mut settlements {
            if matches!(settlement.decision, Decision::Retry { .. }) {
                settlement.decision = Decision::Published;
            }
        }
    }
    settlements
}

impl<D> std::fmt::Debug for Watched<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("number", &self.number).field("plant", &self.plant).finish_non_exhaustive()
    }
}
