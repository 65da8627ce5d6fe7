//! Without order: any number of relays compete for whatever is due, each in a transaction that locks what it claimed.
//!
//! It scales with the number of relays and needs no shards, and it reorders keys: two relays send two messages of one key
//! at the same time, and a message that failed is overtaken by its successors. For those who do not need order.
//!
//! It never works beside relays that keep order, which would send the same rows: whoever keeps order wins, and the
//! others stop until it has gone.

use landfall_core::{CompetingQueue, Lease, Mode, Result};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::keeper::Working;
use super::seat::{Row, Seat};
use super::sender::{Progress, Sender, Sent, Turn, fire_and_forget, report};
use crate::patience::Patience;

pub(super) struct Competition<'a> {
    pub(super) queue: &'a dyn CompetingQueue,
    pub(super) patience: Patience,
    pub(super) sender: Sender<'a>,
    pub(super) seated: watch::Receiver<Option<Lease>>,
    pub(super) working: Working,
}

impl Turn for Competition<'_> {
    async fn take(&self) -> Result<Progress> {
        // While this is held the doorkeeper does not get up.
        let _busy = self.working.lock().await;
        let may_work = self.seated.borrow().as_ref().is_some_and(Lease::is_live);
        if may_work { self.run().await } else { Ok(Progress::Idle) }
    }
}

impl Competition<'_> {
    async fn run(&self) -> Result<Progress> {
        let mut claim = self.patience.with(self.queue.claim(self.sender.options.batch)).await?;
        let entries = claim.take_entries();
        if entries.is_empty() {
            return Ok(Progress::Idle);
        }
        fail::fail_point!("relay.after-claim");
        let (mut batch, mut settlements) = self.sender.sort(entries);

        let once = fire_and_forget(&batch);
        if !once.is_empty() {
            // They are gone for good before they are sent; the others are free again and come with the next claim.
            self.patience.with(claim.settle(&once)).await?;
            batch.retain(|(_, message)| message.mode == Mode::AtMostOnce);
            self.sender.send(batch).await;
            return Ok(Progress::Moved);
        }
        match self.sender.send(batch).await {
            Sent::BrokerDown(reason) => return Ok(Progress::BrokerDown(reason)),
            Sent::Decided(decided) => settlements.extend(decided),
        }
        report(&settlements);
        self.patience.with(claim.settle(&settlements)).await?;
        fail::fail_point!("relay.after-settle");
        Ok(Progress::Moved)
    }
}

/// Keeps a seat while nobody keeps order.
pub(super) struct Doorkeeper {
    seat: Seat,
    seated: watch::Sender<Option<Lease>>,
    working: Working,
}

impl Doorkeeper {
    pub(super) fn new(seat: Seat) -> Self {
        Self { seat, seated: watch::Sender::new(None), working: Working::default() }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Option<Lease>> {
        self.seated.subscribe()
    }

    pub(super) fn working(&self) -> Working {
        self.working.clone()
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            if let Err(error) = self.seat.patience().with(self.keep()).await {
                tracing::warn!(%error, "the relay's lease cannot be renewed; it ends by itself");
            }
            tokio::select! { () = tokio::time::sleep(self.seat.interval()) => {}, () = stop.cancelled() => {} }
        }
        self.get_up().await;
    }

    async fn keep(&mut self) -> Result<()> {
        let lease = self.seat.take().await?;
        if self.seat.count(Row::Ordered).await? == 0 {
            self.seated.send_replace(Some(lease));
        } else {
            tracing::warn!("a relay that keeps order is at work on this outbox; waiting until it has stopped");
            self.get_up().await;
        }
        Ok(())
    }

    async fn get_up(&mut self) {
        let _after_the_pass = self.working.lock().await;
        self.seated.send_replace(None);
        if let Err(error) = self.seat.patience().with(self.seat.leave(Vec::new())).await {
            tracing::warn!(%error, "the relay's lease could not be given back; it ends by itself");
        }
    }
}
