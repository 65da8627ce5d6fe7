//! Leases a fair share of the shards: each live relay holds about as many as the others.
//!
//! Live relays are counted by their registrations. A relay acquires shards that are free and releases its surplus when
//! more relays register; there is no coordinator.
//!
//! Where the broker supports fencing, the previous holder of an expired shard is fenced *before* the shard is acquired.
//! A relay that dies in between then leaves nothing undone. A fenced relay that wakes up meanwhile may renew its lease
//! and start again, but then it holds the shard for a full lease: a shard that can still be acquired within that time
//! was not renewed.

use std::sync::Arc;
use std::time::Instant;

use landfall_core::adapter::{FencedPublisher, Lease, Shard};
use landfall_core::{Error, ErrorKind, Result};
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

use super::registration::{Registration, RelayKind};

/// The shards held now. The reader also checks the expiry of each lease.
pub(super) type HeldLeases = watch::Receiver<Vec<Lease>>;
/// Locked during a pass, and while shards are released.
pub(super) type PassLock = Arc<Mutex<()>>;

/// Acquires, renews and releases the shard leases of an ordered relay.
pub(super) struct ShardLeases {
    registration: Registration,
    shards: u16,
    held: watch::Sender<Vec<Lease>>,
    pass: PassLock,
    fenced: Option<Arc<dyn FencedPublisher>>,
}

impl ShardLeases {
    pub(super) fn new(registration: Registration, shards: u16, fenced: Option<Arc<dyn FencedPublisher>>) -> Self {
        let (held, _) = watch::channel(Vec::new());
        Self { registration, shards, held, pass: PassLock::default(), fenced }
    }

    pub(super) fn subscribe(&self) -> HeldLeases {
        self.held.subscribe()
    }

    pub(super) fn pass_lock(&self) -> PassLock {
        self.pass.clone()
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            if let Err(error) = self.registration.deadline().run(self.rebalance()).await {
                tracing::warn!(%error, "leases not renewed; they will expire");
            }
            tokio::select! { () = tokio::time::sleep(self.registration.interval()) => {}, () = stop.cancelled() => {} }
        }
        self.release_all().await;
    }

    async fn rebalance(&mut self) -> Result<()> {
        self.registration.renew().await?;
        let mut held = self.held.borrow().clone();
        if !held.is_empty() {
            held = self.registration.leases.renew(&held, self.registration.ttl).await?;
            self.warn_of_late_renewal(&held);
            self.held.send_replace(held.clone());
        }
        let relays = self.registration.count(RelayKind::Ordered).await?.max(1);
        let share = usize::from(self.shards).div_ceil(relays);
        if held.len() > share {
            self.release_surplus(held, share).await
        } else if held.len() < share {
            self.acquire(held, share).await
        } else {
            Ok(())
        }
    }

    /// A relay whose leases expire while they are renewed publishes nothing, and would otherwise look idle.
    fn warn_of_late_renewal(&self, renewed: &[Lease]) {
        let expired = renewed.iter().filter(|lease| !lease.is_live()).count();
        if expired > 0 {
            let ttl = self.registration.ttl;
            tracing::warn!(expired, ?ttl, "leases expired while they were renewed; raise the lease's duration");
        }
    }

    /// Acquires free shards until the share is full, starting at a random one so that two new relays rarely collide.
    /// Acquires none while an unordered relay is registered: it sees this relay's registration and deregisters.
    async fn acquire(&self, mut held: Vec<Lease>, share: usize) -> Result<()> {
        let Registration { leases, holder, ttl, .. } = &self.registration;
        if self.registration.count(RelayKind::Unordered).await? > 0 {
            tracing::warn!("an unordered relay works on this outbox; waiting until it stops");
            return Ok(());
        }
        // In this order: a shard that is not held now had expired, or was released, before expired holders are fenced.
        let taken = leases.held(Shard::LEASES).await?;
        let fenced_at = Instant::now();
        self.fence_expired_holders().await?;
        let start = rand::random_range(0..self.shards.max(1));
        let mut leased = 0;
        for step in 0..self.shards {
            if held.len() >= share {
                break;
            }
            let name = Shard((start + step) % self.shards).lease_name();
            if taken.contains(&name) {
                continue;
            }
            if self.fenced.is_some() && fenced_at.elapsed() > *ttl / 2 {
                // A fenced relay may have returned and expired again since.
                break;
            }
            if let Some(lease) = leases.acquire(&name, holder, *ttl).await? {
                tracing::debug!(shard = %lease.name.0, epoch = lease.epoch, "shard leased");
                leased += 1;
                held.push(lease);
                self.held.send_replace(held.clone());
            }
        }
        if leased > 0 {
            tracing::info!(leased, held = held.len(), "shards leased");
        }
        Ok(())
    }

    /// Fails if one of them may still publish: then no shard is acquired.
    async fn fence_expired_holders(&self) -> Result<()> {
        let Some(fenced) = &self.fenced else { return Ok(()) };
        let Registration { leases, holder: own, ttl, .. } = &self.registration;
        for holder in leases.lapsed(Shard::LEASES).await? {
            if holder == *own {
                continue;
            }
            // A fraction of the lease, so that this relay's own leases do not expire meanwhile.
            let fencing = tokio::time::timeout(*ttl / 3, fenced.fence(&holder)).await;
            fencing.unwrap_or_else(|elapsed| {
                let text = format!("relay {holder} was not fenced in time; its shards are not acquired");
                Err(Error::new(ErrorKind::Unavailable, text).with_source(elapsed))
            })?;
            tracing::info!(%holder, "fenced a relay whose leases expired");
        }
        Ok(())
    }

    async fn release_surplus(&self, mut held: Vec<Lease>, share: usize) -> Result<()> {
        let _between_passes = self.pass.lock().await;
        let surplus = held.split_off(share);
        self.held.send_replace(held);
        self.registration.leases.release(&surplus).await
    }

    async fn release_all(&mut self) {
        let _after_the_last_pass = self.pass.lock().await;
        let held = self.held.send_replace(Vec::new());
        if let Err(error) = self.registration.deadline().run(self.registration.release(held)).await {
            tracing::warn!(%error, "leases not released; they will expire");
        }
    }
}
