//! Relay: committed messages reach the broker, per key in order (P5).
//!
//! ```text
//!   shard leases ── a fair share of the shards, renewed while the relay lives ──┐
//!                                                                               ▼
//!   next batch of the leased shards ─▶ publish ─▶ one outcome each ─▶ settle under the leases' epochs
//! ```
//!
//! Reading changes nothing and settling compares the epoch, so a relay may die or stop at any point: the relay that
//! takes the shard over reads the same rows again. A message may thus be published twice, never zero times. Duplicates
//! do not reorder the effects of a key: each follows at least one copy of everything before it.
//!
//! Where the broker supports fencing ([`Publisher::fenced`]), duplicates of that kind are prevented too: the relay that
//! takes over an expired shard fences the previous holder first.
//!
//! An unordered relay ([`Builder::unordered`]) gives up the order of keys for more parallelism.

mod builder;
mod competing;
mod decide;
mod idle;
mod mode_guard;
mod ordered;
mod pace;
mod publish;
mod registration;
mod shard_leases;

use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_core::{Backoff, CompetingQueue, Error, Holder, Leases, Limits, OutboxQueue, Publisher, Result};
use tokio_util::sync::CancellationToken;

use crate::call_deadline::CallDeadline;
use crate::supervised_task::SupervisedTask;
use competing::CompetingPass;
use idle::Idle;
use mode_guard::ModeGuard;
use ordered::OrderedPass;
use pace::Pace;
use publish::{BatchPublisher, Pass, Progress};
use registration::{Registration, RelayKind};
use shard_leases::ShardLeases;

pub use builder::Builder;

/// The name of the task that renews leases.
const LEASE_TASK: &str = "lease";

/// Publishes the messages of one outbox to one broker. Any number of relays may run, in any number of processes.
///
/// ```
/// use landfall::log::{self, Log};
/// use landfall::prelude::*;
/// use landfall::sqlite::{self, Sqlite};
/// use tokio_util::sync::CancellationToken;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let database = Sqlite::open("sqlite::memory:", sqlite::Options::default()).await?;
/// database.migrate().await?;
/// let log = Log::open(folder.path(), log::Options::default())?;
/// let relay = Relay::builder(database, log.publisher()).build()?;
/// let stop = CancellationToken::new();
/// # stop.cancel();
/// relay.run(stop).await?;
/// # Ok(())
/// # }
/// ```
pub struct Relay {
    queue: Arc<dyn OutboxQueue>,
    /// Present in an unordered relay.
    competing: Option<Arc<dyn CompetingQueue>>,
    leases: Arc<dyn Leases>,
    publisher: Arc<dyn Publisher>,
    options: Options,
}

/// How a relay reads, publishes and retries.
///
/// ```
/// use std::time::Duration;
///
/// use landfall::relay::Options;
///
/// let options = Options { batch: 500, lease_ttl: Duration::from_secs(5), ..Options::default() };
/// assert!(options.failed_holds_key);
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    /// The maximum number of messages that are read, published and settled in one pass.
    pub batch: usize,
    /// How long a lease lasts. After a relay dies, another takes over its shards within this time.
    pub lease_ttl: Duration,
    /// Delays between the attempts of a refused message, and the number of attempts before it is parked.
    pub backoff: Backoff,
    /// Whether a parked message holds its key until it is redriven. If not, its successors overtake it. An unordered
    /// relay never holds keys.
    pub failed_holds_key: bool,
    /// The longest interval between two polls of an idle outbox, for writers that do not wake the relay.
    pub poll_max: Duration,
    /// Messages beyond these limits, which plain SQL can write, are parked instead of published.
    pub limits: Limits,
    /// The holder of the leases: unique for every process.
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

impl Options {
    /// Refuses values with which the relay could not work.
    fn check(&self) -> Result<()> {
        let refused = |problem: &str| Err(Error::invalid(format!("relay option {problem}")));
        if self.batch == 0 {
            return refused("batch is 0; it must be at least 1");
        }
        if self.lease_ttl.is_zero() {
            return refused("lease_ttl is zero; a lease would expire at once");
        }
        if self.poll_max.is_zero() {
            return refused("poll_max is zero; an idle relay would poll without a pause");
        }
        if self.backoff.max_attempts == 0 {
            return refused("backoff.max_attempts is 0; it must be at least 1");
        }
        Ok(())
    }
}

impl Relay {
    /// Starts to build a relay that publishes the outbox of `database` to `publisher`.
    pub fn builder<D: OutboxQueue + Leases + 'static>(database: D, publisher: Arc<dyn Publisher>) -> Builder<D> {
        let database = Arc::new(database);
        Builder::new(database.clone(), database, publisher)
    }

    /// Like [`Relay::builder`], for an outbox and leases that are separate values, such as decorated ports.
    pub fn builder_from_parts<D: OutboxQueue + 'static>(
        queue: Arc<D>,
        leases: Arc<dyn Leases>,
        publisher: Arc<dyn Publisher>,
    ) -> Builder<D> {
        Builder::new(queue, leases, publisher)
    }

    /// Works until `stop` is cancelled, then finishes the batch in flight and releases its leases.
    ///
    /// While the database or the broker is unavailable the relay backs off. Fails only on errors that are not
    /// temporary, such as a schema that this build does not support.
    pub async fn run(self, stop: CancellationToken) -> Result<()> {
        let result = match &self.competing {
            None => self.run_ordered(&stop).await,
            Some(queue) => self.run_unordered(&**queue, &stop).await,
        };
        if let Err(error) = &result {
            // Logged here as well, because the caller may not await the relay's task.
            tracing::error!(%error, "relay stopped; nothing is published any more");
        }
        result
    }

    async fn run_ordered(&self, stop: &CancellationToken) -> Result<()> {
        let stop = &stop.child_token();
        let fenced = self.publisher.fenced(&self.options.holder);
        let leases = ShardLeases::new(self.registration(RelayKind::Ordered), self.queue.shards(), fenced.clone());
        let publisher: &dyn Publisher = match &fenced {
            Some(fenced) => &**fenced,
            None => &*self.publisher,
        };
        let pass = OrderedPass {
            queue: &*self.queue,
            deadline: CallDeadline::for_lease(self.options.lease_ttl),
            publisher: self.publisher(publisher),
            fenced: fenced.as_deref(),
            held: leases.subscribe(),
            pass: leases.pass_lock(),
        };
        let task = SupervisedTask::spawn(LEASE_TASK, stop, leases.run(stop.clone()));
        let result = self.run_passes(stop, &pass).await;
        stop.cancel();
        // The task releases the leases before it returns.
        result.and(task.join().await)
    }

    async fn run_unordered(&self, queue: &dyn CompetingQueue, stop: &CancellationToken) -> Result<()> {
        let stop = &stop.child_token();
        let guard = ModeGuard::new(self.registration(RelayKind::Unordered));
        let pass = CompetingPass {
            queue,
            deadline: CallDeadline::for_lease(self.options.lease_ttl),
            publisher: self.publisher(&*self.publisher),
            registered: guard.subscribe(),
            pass: guard.pass_lock(),
        };
        let task = SupervisedTask::spawn(LEASE_TASK, stop, guard.run(stop.clone()));
        let result = self.run_passes(stop, &pass).await;
        stop.cancel();
        result.and(task.join().await)
    }

    fn registration(&self, kind: RelayKind) -> Registration {
        Registration::new(self.leases.clone(), self.options.holder.clone(), self.options.lease_ttl, kind)
    }

    fn publisher<'a>(&'a self, publisher: &'a dyn Publisher) -> BatchPublisher<'a> {
        BatchPublisher { publisher, options: &self.options }
    }

    /// Runs passes until `stop`, with pauses while the outbox is empty or something is unavailable, and with short ones
    /// under steady traffic.
    async fn run_passes(&self, stop: &CancellationToken, pass: &impl Pass) -> Result<()> {
        let mut idle = Idle::new(self.options.poll_max, Instant::now());
        let mut pace = Pace::new(self.options.batch, Instant::now());
        let mut outages = 0_u32;
        while !stop.is_cancelled() {
            let pause = match pass.run().await {
                Ok(Progress::Moved(messages)) => {
                    (idle, outages) = (Idle::new(self.options.poll_max, Instant::now()), 0);
                    match pace.pause_after(messages, Instant::now()) {
                        Some(pause) => pause,
                        None => continue,
                    }
                }
                Ok(Progress::Idle) => {
                    outages = 0;
                    let at_most = idle.next_pause(Instant::now());
                    tokio::select! { () = self.queue.wait(at_most) => {}, () = stop.cancelled() => {} }
                    continue;
                }
                Ok(Progress::BrokerDown(reason)) => {
                    outages += 1;
                    let pause = self.pause_after(outages);
                    tracing::warn!(%reason, ?pause, "broker unavailable, backing off");
                    pause
                }
                Err(error) if error.is_temporary() => {
                    outages += 1;
                    let pause = self.pause_after(outages);
                    tracing::warn!(%error, ?pause, "outbox unavailable, backing off");
                    pause
                }
                Err(error) => return Err(error),
            };
            tokio::select! { () = tokio::time::sleep(pause) => {}, () = stop.cancelled() => {} }
        }
        Ok(())
    }

    /// The pause after `outages` consecutive outages, which cost no message an attempt and are retried without limit.
    fn pause_after(&self, outages: u32) -> Duration {
        let unbounded = Backoff {
            max_attempts: u32::MAX,
            cap: self.options.backoff.cap.min(Duration::from_secs(5)),
            ..self.options.backoff
        };
        unbounded.delay_after(outages, rand::random()).unwrap_or(unbounded.cap)
    }
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").field("options", &self.options).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_out_of_range_are_refused_by_name() {
        let default = Options::default;
        default().check().unwrap();
        let never = Backoff { max_attempts: 0, ..default().backoff };
        for (options, name) in [
            (Options { batch: 0, ..default() }, "batch"),
            (Options { lease_ttl: Duration::ZERO, ..default() }, "lease_ttl"),
            (Options { poll_max: Duration::ZERO, ..default() }, "poll_max"),
            (Options { backoff: never, ..default() }, "backoff.max_attempts"),
        ] {
            let error = options.check().unwrap_err().to_string();
            assert!(error.contains(&format!("relay option {name} ")), "{error}");
        }
    }
}
