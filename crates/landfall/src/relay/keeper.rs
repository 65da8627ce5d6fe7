//! Keeps a fair share of the shards leased: each relay that is alive holds about as many as the others.
//!
//! A relay says that it is alive by a lease of its own: the first free one of `relay/0`, `relay/1`…, so that the table
//! never has more of these than there were relays at the same time. Shards are taken when they are free, and given
//! back when there are more relays than before; nobody coordinates anybody.

use std::sync::Arc;
use std::time::Duration;

use landfall_core::{Holder, Lease, LeaseName, Leases, Result, Shard};
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

const ALIVE: &str = "relay/";

/// The shards held right now; the reader checks each lease's own clock as well.
pub(super) type Held = watch::Receiver<Vec<Lease>>;
/// Locked during a pass, and while a shard is given away.
pub(super) type Working = Arc<Mutex<()>>;

pub(super) struct Keeper {
    leases: Arc<dyn Leases>,
    holder: Holder,
    ttl: Duration,
    shards: u16,
    held: watch::Sender<Vec<Lease>>,
    working: Working,
}

impl Keeper {
    pub(super) fn new(leases: Arc<dyn Leases>, holder: Holder, ttl: Duration, shards: u16) -> Self {
        let (held, _) = watch::channel(Vec::new());
        Self { leases, holder, ttl, shards, held, working: Working::default() }
    }

    pub(super) fn subscribe(&self) -> Held {
        self.held.subscribe()
    }

    pub(super) fn working(&self) -> Working {
        self.working.clone()
    }

    pub(super) async fn run(self, stop: CancellationToken) {
        // Often enough to renew twice before a lease ends, and to take over a dead relay's shards within a second.
        let interval = (self.ttl / 3).min(Duration::from_secs(1));
        let mut seat = 0;
        while !stop.is_cancelled() {
            if let Err(error) = self.keep(&mut seat).await {
                tracing::warn!(%error, "leases cannot be renewed; what is held ends by itself");
            }
            tokio::select! { () = tokio::time::sleep(interval) => {}, () = stop.cancelled() => {} }
        }
        self.give_back(seat).await;
    }

    async fn keep(&self, seat: &mut u32) -> Result<()> {
        while self.leases.acquire(&alive(*seat), &self.holder, self.ttl).await?.is_none() {
            *seat += 1;
        }
        let mut held = self.held.borrow().clone();
        if !held.is_empty() {
            held = self.leases.renew(&held, self.ttl).await?;
            self.held.send_replace(held.clone());
        }
        let relays = self.leases.held(ALIVE).await?.len().max(1);
        let share = usize::from(self.shards).div_ceil(relays);
        if held.len() > share {
            self.give_away(held, share).await
        } else if held.len() < share {
            self.take(held, share).await
        } else {
            Ok(())
        }
    }

    /// Takes free shards until the share is full, beginning at a random one so that two newcomers rarely collide.
    async fn take(&self, mut held: Vec<Lease>, share: usize) -> Result<()> {
        let taken = self.leases.held(Shard::LEASES).await?;
        let start = rand::random_range(0..self.shards.max(1));
        for step in 0..self.shards {
            if held.len() >= share {
                break;
            }
            let name = Shard((start + step) % self.shards).lease_name();
            if taken.contains(&name) {
                continue;
            }
            if let Some(lease) = self.leases.acquire(&name, &self.holder, self.ttl).await? {
                tracing::info!(shard = %lease.name.0, epoch = lease.epoch, "leased");
                held.push(lease);
                self.held.send_replace(held.clone());
            }
        }
        Ok(())
    }

    async fn give_away(&self, mut held: Vec<Lease>, share: usize) -> Result<()> {
        let _between_passes = self.working.lock().await;
        let surplus = held.split_off(share);
        self.held.send_replace(held);
        self.leases.release(&surplus).await
    }

    async fn give_back(&self, seat: u32) {
        let _after_the_last_pass = self.working.lock().await;
        let mut held = self.held.send_replace(Vec::new());
        // Only to learn the epoch of the sign of life, which is released with the shards.
        if let Ok(Some(lease)) = self.leases.acquire(&alive(seat), &self.holder, self.ttl).await {
            held.push(lease);
        }
        if let Err(error) = self.leases.release(&held).await {
            tracing::warn!(%error, "leases could not be given back; they end by themselves");
        }
    }
}

fn alive(seat: u32) -> LeaseName {
    LeaseName(format!("{ALIVE}{seat}"))
}
