//! Housekeeping: removes expired rows in small steps.
//!
//! ```text
//!   every interval: acquire the lease ─▶ sent messages ─▶ ids ─▶ done dead letters ─▶ release the lease
//!                     (and once an hour the sequence numbers of entities)
//!                                      └── each in small steps, with a pause as long as the step took ──┘
//! ```
//!
//! Run one beside every relay and every consumer: a lease ensures that one at a time works on a database. This module
//! does not decide how long an id must be kept; a [`RetentionPlan`] does, before anything
//! starts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_core::adapter::{Lease, LeaseName};
use landfall_core::{Error, ErrorKind, Holder, Housekeeping, Leases, Result};
use tokio_util::sync::CancellationToken;

pub use landfall_core::{Expiring, RetentionPlan, Retries, Span, Window};

/// Removes expired rows from one database.
///
/// ```
/// use std::sync::Arc;
///
/// use landfall::housekeeping::{Housekeeper, Policy, Span};
/// use landfall::prelude::*;
/// use landfall::sqlite::{self, Sqlite};
/// use tokio_util::sync::CancellationToken;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let database = Arc::new(Sqlite::open("sqlite::memory:", sqlite::Options::default()).await?);
/// database.migrate().await?;
/// let policy = Policy { inbox: Span::days(14), ..Policy::default() };
/// let housekeeper = Housekeeper::new(database.clone(), database, policy)?;
/// let stop = CancellationToken::new();
/// # stop.cancel();
/// housekeeper.run(stop).await?;
/// # Ok(())
/// # }
/// ```
pub struct Housekeeper {
    database: Arc<dyn Housekeeping>,
    leases: Arc<dyn Leases>,
    policy: Policy,
}

/// Retention periods, and how fast expired rows are removed.
///
/// ```
/// use landfall::housekeeping::{Policy, Span};
///
/// let policy = Policy { dead_letters: Span::days(90), ..Policy::default() };
/// assert_eq!(policy.sequences, Span::Forever);
/// ```
#[derive(Debug, Clone)]
pub struct Policy {
    /// Sent messages, where the database keeps them (`keep_sent`).
    pub sent: Span,
    /// The ids of handled messages: the window within which a duplicate is recognised.
    pub inbox: Span,
    /// The ids that senders gave to messages, where a message is enqueued once per id
    /// ([`IdempotentAppend`](landfall_core::IdempotentAppend)).
    pub enqueued_ids: Span,
    /// The sequence number of each entity, from its last applied message, for consumers that check sequence numbers. An
    /// entity that is removed starts again with its next message, so set this only for entities that end.
    pub sequences: Span,
    /// Dead letters, from when they are done. An open one is never removed.
    pub dead_letters: Span,
    /// The maximum number of rows removed in one transaction.
    pub step: u64,
    /// The pause between two rounds.
    pub interval: Duration,
    /// How long the lease lasts. After a housekeeper dies, another takes over within this time.
    pub lease_ttl: Duration,
    /// The holder of the lease: unique for every process.
    pub holder: Holder,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            sent: Span::ZERO,
            inbox: Span::days(45),
            enqueued_ids: Span::days(7),
            sequences: Span::Forever,
            dead_letters: Span::days(30),
            step: 500,
            interval: Duration::from_secs(30),
            lease_ttl: Duration::from_secs(30),
            holder: Holder(format!("{}-{:08x}", std::process::id(), rand::random::<u32>())),
        }
    }
}

impl Policy {
    /// Refuses values with which the housekeeper could not work.
    fn check(&self) -> Result<()> {
        let refused = |problem: &str| Err(Error::invalid(format!("housekeeping option {problem}")));
        if self.step == 0 {
            return refused("step is 0; it must be at least 1");
        }
        if self.interval.is_zero() {
            return refused("interval is zero; rounds would follow each other without a pause");
        }
        if self.lease_ttl.is_zero() {
            return refused("lease_ttl is zero; a lease would expire at once");
        }
        Ok(())
    }
}

const LEASE: &str = "housekeeping";

/// There is no index on the time of the last message, which every message would have to update: each scan reads the
/// whole table.
const SEQUENCES_EVERY: Duration = Duration::from_secs(3600);

/// Longer than the longest pause between two attempts: a record that is overdue by this time was left by a crash.
const RETRIES_OVERDUE: Span = Span::Time(Duration::from_secs(24 * 3600));

/// What every round removes.
const EVERY_ROUND: [Expiring; 5] =
    [Expiring::Sent, Expiring::HandledIds, Expiring::EnqueuedIds, Expiring::Retries, Expiring::DoneLetters];

impl Housekeeper {
    /// Works on `database` under a lease of `leases`. Fails with kind `Invalid` if an option of `policy` is out of
    /// range.
    pub fn new(database: Arc<dyn Housekeeping>, leases: Arc<dyn Leases>, policy: Policy) -> Result<Self> {
        policy.check()?;
        Ok(Self { database, leases, policy })
    }

    /// Works until `stop` is cancelled. A failed round is repeated after the interval. Fails only if this build does
    /// not support the schema.
    pub async fn run(self, stop: CancellationToken) -> Result<()> {
        let mut sequences_scanned = None;
        while !stop.is_cancelled() {
            let mut tasks = EVERY_ROUND.to_vec();
            if sequences_scanned.is_none_or(|last: Instant| last.elapsed() >= SEQUENCES_EVERY) {
                tasks.push(Expiring::Sequences);
            }
            match self.round(&tasks, &stop).await {
                Err(error) if error.kind() == ErrorKind::Schema => return Err(error),
                Err(error) => tracing::warn!(%error, "housekeeping failed, retrying in the next round"),
                Ok(true) if tasks.contains(&Expiring::Sequences) => sequences_scanned = Some(Instant::now()),
                Ok(_) => {}
            }
            pause(self.policy.interval, &stop).await;
        }
        Ok(())
    }

    /// Returns whether this housekeeper held the lease.
    async fn round(&self, tasks: &[Expiring], stop: &CancellationToken) -> Result<bool> {
        let name = LeaseName(LEASE.to_owned());
        let Some(mut lease) = self.leases.acquire(&name, &self.policy.holder, self.policy.lease_ttl).await? else {
            return Ok(false);
        };
        let result = self.remove_expired(tasks, &mut lease, stop).await;
        self.leases.release(&[lease]).await?;
        result.map(|()| true)
    }

    async fn remove_expired(&self, tasks: &[Expiring], lease: &mut Lease, stop: &CancellationToken) -> Result<()> {
        for task in tasks.iter().copied() {
            let mut removed = 0;
            while let Some(age) = self.age(task).time() {
                if stop.is_cancelled() || !self.holds(lease).await? {
                    return Ok(());
                }
                let started = Instant::now();
                let step = self.database.remove_expired(task, age, self.policy.step).await?;
                removed += step;
                if step < self.policy.step {
                    break;
                }
                // Leaves half of the time to other transactions.
                pause(started.elapsed(), stop).await;
            }
            if removed > 0 {
                metrics::counter!("landfall_housekeeping_removed_total", "what" => task.as_str()).increment(removed);
                tracing::info!(what = task.as_str(), removed, "removed expired rows");
            }
        }
        Ok(())
    }

    fn age(&self, what: Expiring) -> Span {
        match what {
            Expiring::Sent => self.policy.sent,
            Expiring::HandledIds => self.policy.inbox,
            Expiring::EnqueuedIds => self.policy.enqueued_ids,
            Expiring::Retries => RETRIES_OVERDUE,
            Expiring::Sequences => self.policy.sequences,
            Expiring::DoneLetters => self.policy.dead_letters,
        }
    }

    /// Renews the lease in good time and returns whether it is still held. After losing it this housekeeper stops: two
    /// at once would be harmless and useless.
    async fn holds(&self, lease: &mut Lease) -> Result<bool> {
        if lease.until.saturating_duration_since(Instant::now()) > self.policy.lease_ttl / 2 {
            return Ok(true);
        }
        match self.leases.renew(std::slice::from_ref(lease), self.policy.lease_ttl).await?.pop() {
            Some(renewed) => *lease = renewed,
            None => return Ok(false),
        }
        Ok(true)
    }
}

impl std::fmt::Debug for Housekeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Housekeeper").field("policy", &self.policy).finish_non_exhaustive()
    }
}

async fn pause(time: Duration, stop: &CancellationToken) {
    tokio::select! { () = tokio::time::sleep(time) => {}, () = stop.cancelled() => {} }
}
