//! Keeps a fair share of the shards leased: each relay that is alive holds about as many as the others.
//!
//! A relay says that it is alive by its seat. Shards are taken when they are free, and given back when there are more
//! relays than before; nobody coordinates anybody.
//!
//! Where the broker can fence, whoever let a shard expire is silenced *before* the shard is taken, so that a relay which
//! dies in between leaves nothing undone. A relay that wakes up meanwhile may extend its lease and begin anew, but then
//! the shard is its own for as long as leases last: one that can still be taken within that time was not extended.

use std::sync::Arc;
use std::time::Instant;

use landfall_core::{Error, ErrorKind, FencedPublisher, Lease, Result, Shard};
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

use super::seat::{Row, Seat};

/// The shards held right now; the reader checks each lease's own clock as well.
pub(super) type Held = watch::Receiver<Vec<Lease>>;
/// Locked during a pass, and while a shard is given away.
pub(super) type Working = Arc<Mutex<()>>;

pub(super) struct Keeper {
    seat: Seat,
    shards: u16,
    held: watch::Sender<Vec<Lease>>,
    working: Working,
    fenced: Option<Arc<dyn FencedPublisher>>,
}

impl Keeper {
    pub(super) fn new(seat: Seat, shards: u16, fenced: Option<Arc<dyn FencedPublisher>>) -> Self {
        let (held, _) = watch::channel(Vec::new());
        Self { seat, shards, held, working: Working::default(), fenced }
    }

    pub(super) fn subscribe(&self) -> Held {
        self.held.subscribe()
    }

    pub(super) fn working(&self) -> Working {
        self.working.clone()
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            if let Err(error) = self.seat.patience().with(self.keep()).await {
                tracing::warn!(%error, "leases cannot be renewed; what is held ends by itself");
            }
            tokio::select! { () = tokio::time::sleep(self.seat.interval()) => {}, () = stop.cancelled() => {} }
        }
        self.give_back().await;
    }

    async fn keep(&mut self) -> Result<()> {
        self.seat.take().await?;
        let mut held = self.held.borrow().clone();
        if !held.is_empty() {
            held = self.seat.leases.renew(&held, self.seat.ttl).await?;
            self.held.send_replace(held.clone());
        }
        let relays = self.seat.count(Row::Ordered).await?.max(1);
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
    /// None while a relay without order is at work: it sees this one's seat and gets up.
    async fn take(&self, mut held: Vec<Lease>, share: usize) -> Result<()> {
        if self.seat.count(Row::Unordered).await? > 0 {
            tracing::warn!("a relay without order is at work on this outbox; waiting until it has stopped");
            return Ok(());
        }
        // In this order: what is not held now had lapsed, or was given back, before those who lapsed are asked for.
        let taken = self.seat.leases.held(Shard::LEASES).await?;
        let silenced = Instant::now();
        self.silence_those_who_lapsed().await?;
        let start = rand::random_range(0..self.shards.max(1));
        for step in 0..self.shards {
            if held.len() >= share {
                break;
            }
            let name = Shard((start + step) % self.shards).lease_name();
            if taken.contains(&name) {
                continue;
            }
            if self.fenced.is_some() && silenced.elapsed() > self.seat.ttl / 2 {
                // Somebody may have come back and lapsed again.
                break;
            }
            if let Some(lease) = self.seat.leases.acquire(&name, &self.seat.holder, self.seat.ttl).await? {
                tracing::info!(shard = %lease.name.0, epoch = lease.epoch, "leased");
                held.push(lease);
                self.held.send_replace(held.clone());
            }
        }
        Ok(())
    }

    /// An error if one of them may still be heard: then nothing is taken.
    async fn silence_those_who_lapsed(&self) -> Result<()> {
        let Some(fenced) = &self.fenced else { return Ok(()) };
        for holder in self.seat.leases.lapsed(Shard::LEASES).await? {
            if holder == self.seat.holder {
                continue;
            }
            // Not for so long that this relay's own leases run out.
            let silenced = tokio::time::timeout(self.seat.ttl / 3, fenced.fence(&holder)).await;
            silenced.unwrap_or_else(|late| {
                let sentence = format!("relay {holder} was not silenced in time; its shards are left alone");
                Err(Error::new(ErrorKind::Unavailable, sentence).with_source(late))
            })?;
            tracing::info!(%holder, "a relay that let its shards expire was silenced");
        }
        Ok(())
    }

    async fn give_away(&self, mut held: Vec<Lease>, share: usize) -> Result<()> {
        let _between_passes = self.working.lock().await;
        let surplus = held.split_off(share);
        self.held.send_replace(held);
        self.seat.leases.release(&surplus).await
    }

    async fn give_back(&mut self) {
        let _after_the_last_pass = self.working.lock().await;
        let held = self.held.send_replace(Vec::new());
        if let Err(error) = self.seat.patience().with(self.seat.leave(held)).await {
            tracing::warn!(%error, "leases could not be given back; they end by themselves");
        }
    }
}
