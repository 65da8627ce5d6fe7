//! Relay: what was committed reaches the broker, per key in order (P5).
//!
//! ```text
//!   keeper ── leases of a fair share of the shards, renewed while it lives ──┐
//!                                                                            ▼
//!   next batch of the leased shards ─▶ publish ─▶ one outcome each ─▶ settle under the leases' epochs
//! ```
//!
//! Reading changes nothing and settling compares the epoch, so a relay may die or stop at any point: whoever takes the
//! shard over reads the same rows again. A message may thus be published twice, never zero times, and the copies
//! never put a key out of order at the effect: each copy comes after everything before it has been published once.
//!
//! Where the broker can fence ([`Publisher::fenced`]), not even that: whoever takes a shard over from a relay that let it
//! expire silences that relay first.
//!
//! For those who need no order there is [`Relay::unordered`] (`competing.rs`).

mod competing;
mod decide;
mod keeper;
mod pass;
mod seat;
mod sender;

use std::sync::Arc;
use std::time::Duration;

use landfall_core::{Backoff, CompetingQueue, Holder, Leases, Limits, OutboxQueue, Publisher, Result};
use tokio_util::sync::CancellationToken;

use crate::companion::Companion;
use crate::patience::Patience;
use competing::{Competition, Doorkeeper};
use keeper::Keeper;
use pass::Pass;
use seat::{Row, Seat};
use sender::{Progress, Sender, Turn};

const KEEPS: &str = "keeps the leases of this relay";

/// Moves messages from one outbox to one broker. Run as many as you like, in as many processes as you like.
pub struct Relay {
    queue: Arc<dyn OutboxQueue>,
    /// Set for a relay without order.
    competing: Option<Arc<dyn CompetingQueue>>,
    leases: Arc<dyn Leases>,
    publisher: Arc<dyn Publisher>,
    options: Options,
}

#[derive(Debug, Clone)]
pub struct Options {
    /// Messages read, published and settled at a time.
    pub batch: usize,
    /// How long a relay may be silent before another takes its shards.
    pub lease_ttl: Duration,
    /// For a message the broker refused: delays between its tries, and how many tries before it is parked.
    pub backoff: Backoff,
    /// Whether a message that failed for the last time holds back its key until it is redriven. If not it is skipped: it
    /// is parked all the same, and its successors overtake it.
    pub failed_holds_key: bool,
    /// The longest pause between two looks at a quiet outbox, for writers that wake nobody.
    pub poll_max: Duration,
    /// Messages beyond these limits (plain SQL can write them) are parked instead of published.
    pub limits: Limits,
    /// Who holds the leases: must be new for every process.
    pub holder: Holder,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            batch: 1000,
            lease_ttl: Duration::from_secs(10),
            backoff: Backoff { first: Duration::from_millis(200), cap: Duration::from_secs(30), max_attempts: 10 },
            failed_holds_key: true,
            poll_max: Duration::from_millis(100),
            limits: Limits::default(),
            holder: Holder(format!("{}-{:08x}", std::process::id(), rand::random::<u32>())),
        }
    }
}

impl Relay {
    pub fn new(
        queue: Arc<dyn OutboxQueue>,
        leases: Arc<dyn Leases>,
        publisher: Arc<dyn Publisher>,
        options: Options,
    ) -> Self {
        Self { queue, competing: None, leases, publisher, options }
    }

    /// A relay that keeps no order: it competes with any number of others for whatever is due. Not beside relays that do
    /// keep order; while one of those is at work on the same outbox, this one waits.
    pub fn unordered<Q: OutboxQueue + CompetingQueue + 'static>(
        queue: Arc<Q>,
        leases: Arc<dyn Leases>,
        publisher: Arc<dyn Publisher>,
        options: Options,
    ) -> Self {
        // A parked message holds nobody up where nobody waits for anybody.
        let options = Options { failed_holds_key: false, ..options };
        Self { competing: Some(queue.clone()), queue, leases, publisher, options }
    }

    /// Works until `stop` is cancelled, then finishes the batch in flight and gives its leases back.
    ///
    /// A database or a broker that cannot be reached is waited for, with backoff; it is not an error. `Err` only for
    /// what no waiting mends, such as a schema this build does not understand.
    pub async fn run(self, stop: CancellationToken) -> Result<()> {
        let ended = match &self.competing {
            None => self.run_in_order(&stop).await,
            Some(queue) => self.run_without_order(&**queue, &stop).await,
        };
        if let Err(error) = &ended {
            // Whoever started it may look at something else.
            tracing::error!(%error, "the relay has ended; nothing is published any more");
        }
        ended
    }

    async fn run_in_order(&self, stop: &CancellationToken) -> Result<()> {
        let stop = &stop.child_token();
        let fenced = self.publisher.fenced(&self.options.holder);
        let keeper = Keeper::new(self.seat(Row::Ordered), self.queue.shards(), fenced.clone());
        let publisher: &dyn Publisher = match &fenced {
            Some(fenced) => &**fenced,
            None => &*self.publisher,
        };
        let pass = Pass {
            queue: &*self.queue,
            patience: Patience::of(self.options.lease_ttl),
            sender: self.sender(publisher),
            fenced: fenced.as_deref(),
            held: keeper.subscribe(),
            working: keeper.working(),
        };
        let keep = Companion::spawn(KEEPS, stop, keeper.run(stop.clone()));
        let result = self.work(stop, &pass).await;
        stop.cancel();
        // The keeper gives the leases back as its last act.
        result.and(keep.end().await)
    }

    async fn run_without_order(&self, queue: &dyn CompetingQueue, stop: &CancellationToken) -> Result<()> {
        let stop = &stop.child_token();
        let doorkeeper = Doorkeeper::new(self.seat(Row::Unordered));
        let competition = Competition {
            queue,
            patience: Patience::of(self.options.lease_ttl),
            sender: self.sender(&*self.publisher),
            seated: doorkeeper.subscribe(),
            working: doorkeeper.working(),
        };
        let keep = Companion::spawn(KEEPS, stop, doorkeeper.run(stop.clone()));
        let result = self.work(stop, &competition).await;
        stop.cancel();
        result.and(keep.end().await)
    }

    fn seat(&self, row: Row) -> Seat {
        Seat::new(self.leases.clone(), self.options.holder.clone(), self.options.lease_ttl, row)
    }

    fn sender<'a>(&'a self, publisher: &'a dyn Publisher) -> Sender<'a> {
        Sender { publisher, options: &self.options }
    }

    /// One turn after the other, and what to do in between.
    async fn work(&self, stop: &CancellationToken, turn: &impl Turn) -> Result<()> {
        let mut idle = Idle::new(self.options.poll_max);
        let mut trouble = 0_u32;
        while !stop.is_cancelled() {
            let pause = match turn.take().await {
                Ok(Progress::Moved) => {
                    (idle, trouble) = (Idle::new(self.options.poll_max), 0);
                    continue;
                }
                Ok(Progress::Idle) => {
                    trouble = 0;
                    let at_most = idle.next_pause();
                    tokio::select! { () = self.queue.wait(at_most) => {}, () = stop.cancelled() => {} }
                    continue;
                }
                Ok(Progress::BrokerDown(reason)) => {
                    trouble += 1;
                    let pause = self.pause_after(trouble);
                    tracing::warn!(%reason, ?pause, "the broker takes nothing; waiting");
                    pause
                }
                Err(error) if error.is_temporary() => {
                    trouble += 1;
                    let pause = self.pause_after(trouble);
                    tracing::warn!(%error, ?pause, "the outbox cannot be worked on; waiting");
                    pause
                }
                Err(error) => return Err(error),
            };
            tokio::select! { () = tokio::time::sleep(pause) => {}, () = stop.cancelled() => {} }
        }
        Ok(())
    }

    /// An outage is nobody's fault in particular: it spends no message's attempts and has no maximum.
    fn pause_after(&self, trouble: u32) -> Duration {
        let endless = Backoff {
            max_attempts: u32::MAX,
            cap: self.options.backoff.cap.min(Duration::from_secs(5)),
            ..self.options.backoff
        };
        endless.delay_after(trouble, rand::random()).unwrap_or(endless.cap)
    }
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").field("options", &self.options).finish_non_exhaustive()
    }
}

/// How long to wait when there is nothing to do: short at first, since traffic comes in bursts.
struct Idle {
    pause: Duration,
    cap: Duration,
}

impl Idle {
    fn new(cap: Duration) -> Self {
        Self { pause: Duration::from_millis(1), cap }
    }

    fn next_pause(&mut self) -> Duration {
        let pause = self.pause.min(self.cap);
        self.pause = (self.pause * 2).min(self.cap);
        pause
    }
}
