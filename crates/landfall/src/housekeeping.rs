//! Housekeeping: removes expired rows in small steps.
//!
//! ```text
//!   every interval: acquire the lease ─▶ sent messages ─▶ ids ─▶ done dead letters ─▶ release the lease
//!                     (and once an hour the sequence numbers of entities, and letters that are archived first)
//!                                      └── each in small steps, with a pause as long as the step took ──┘
//! ```
//!
//! Run one beside every relay and every consumer: a lease ensures that one at a time works on a database. This module
//! does not decide how long an id must be kept; a [`RetentionPlan`] does, before anything
//! starts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall_core::adapter::{Lease, LeaseName};
use landfall_core::{ArchivedLetter, Error, ErrorKind, HalfMessageDetail, Holder, Housekeeping, Leases, Result};
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
    /// Dead letters, from when they are done or discarded. An open one is never removed.
    pub dead_letters: Span,
    /// Where final dead letters are kept before they are removed, once an hour; `None` for nowhere.
    pub dead_letter_archive: Option<Arc<dyn Archive<ArchivedLetter>>>,
    /// Half messages, from when they were decided. An undecided one is never removed, nor a contradicted one that no
    /// person has acknowledged.
    pub half_messages: Span,
    /// Where half messages are kept before they are removed; `None` for nowhere.
    pub half_message_archive: Option<Arc<dyn Archive<HalfMessageDetail>>>,
    /// Barrier rows, which answer the check-backs of half messages. Longer than any half message stays undecided: for
    /// one that was prepared earlier, the barrier has no answer.
    pub barriers: Span,
    /// The answers that [idempotency records](crate::idempotency) replay, from the beginning of their work.
    pub idempotency_answers: Span,
    /// The keys of [idempotency records](crate::idempotency), from their last attempt. Uncertain ones are never
    /// removed.
    pub idempotency: Span,
    /// The maximum number of rows removed in one transaction.
    pub step: u64,
    /// The pause between two rounds.
    pub interval: Duration,
    /// How long the lease lasts. After a housekeeper dies, another takes over within this time.
    pub lease_ttl: Duration,
    /// The holder of the lease: unique for every process.
    pub holder: Holder,
}

/// Keeps rows that are removed from the database.
#[async_trait]
pub trait Archive<T>: std::fmt::Debug + Send + Sync {
    /// Returns once the rows are durable and can be read back, with the name of the place. Is called again with the
    /// same rows after a crash or an error: a row may be in the archive twice, and never in neither place.
    async fn store(&self, rows: Vec<T>) -> Result<String>;
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            sent: Span::ZERO,
            inbox: Span::days(45),
            enqueued_ids: Span::days(7),
            sequences: Span::Forever,
            dead_letters: Span::days(30),
            dead_letter_archive: None,
            half_messages: Span::days(7),
            half_message_archive: None,
            barriers: Span::days(30),
            idempotency_answers: Span::days(1),
            idempotency: Span::days(7),
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
        if self.idempotency < self.idempotency_answers {
            let (keys, answers) = (self.idempotency, self.idempotency_answers);
            return refused(&format!("idempotency ({keys}) is shorter than idempotency_answers ({answers})"));
        }
        Ok(())
    }
}

const LEASE: &str = "housekeeping";

/// Letters wait for the archive, so that its objects are few. Sequence numbers have no index on the time of the last
/// message, which every message would have to update: each scan reads the whole table.
const HOURLY: Duration = Duration::from_secs(3600);

/// Longer than the longest pause between two attempts: a record that is overdue by this time was left by a crash.
const RETRIES_OVERDUE: Span = Span::Time(Duration::from_secs(24 * 3600));

/// What every round removes.
const EVERY_ROUND: [Expiring; 9] = [
    Expiring::Sent,
    Expiring::HandledIds,
    Expiring::EnqueuedIds,
    Expiring::Retries,
    Expiring::DoneLetters,
    Expiring::Barriers,
    Expiring::IdempotencyAnswers,
    Expiring::IdempotencyRecords,
    Expiring::HalfMessages,
];

/// Half messages archived and removed together; few, since their payloads are in memory.
const ARCHIVED_AT_ONCE: u64 = 100;

/// Dead letters archived and removed together: the letters of an object.
pub const LETTERS_AT_ONCE: u64 = 1000;

/// No row is as old: only the upkeep of the tables is left to do.
const NOTHING: Duration = Duration::from_secs(1000 * 365 * 24 * 3600);

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
        let mut last_hourly = None;
        while !stop.is_cancelled() {
            let is_hour_over = last_hourly.is_none_or(|last: Instant| last.elapsed() >= HOURLY);
            match self.round(&self.tasks(is_hour_over), &stop).await {
                Err(error) if error.kind() == ErrorKind::Schema => return Err(error),
                Err(error) => tracing::warn!(%error, "housekeeping failed, retrying in the next round"),
                Ok(true) if is_hour_over => last_hourly = Some(Instant::now()),
                Ok(_) => {}
            }
            pause(self.policy.interval, &stop).await;
        }
        Ok(())
    }

    fn tasks(&self, is_hour_over: bool) -> Vec<Expiring> {
        let mut tasks = EVERY_ROUND.to_vec();
        if is_hour_over {
            tasks.insert(0, Expiring::Sequences);
        } else if self.policy.dead_letter_archive.is_some() {
            tasks.retain(|task| *task != Expiring::DoneLetters);
        }
        tasks
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
        let mut result = Ok(());
        for task in tasks.iter().copied() {
            let mut removed = 0;
            while let Some(age) = self.age(task).time() {
                if stop.is_cancelled() || !self.holds(lease).await? {
                    return result;
                }
                let started = Instant::now();
                let step = self.step(task, age).await?;
                removed += step.removed;
                // The rows stay, and what else is expired is removed.
                result = result.and(step.archived);
                if step.is_last {
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
        result
    }

    /// Removes some rows.
    async fn step(&self, task: Expiring, age: Duration) -> Result<Step> {
        match (task, &self.policy.half_message_archive, &self.policy.dead_letter_archive) {
            (Expiring::HalfMessages, Some(archive), _) => self.archive_half_messages(&**archive, age).await,
            (Expiring::DoneLetters, _, Some(archive)) => self.archive_letters(&**archive, age).await,
            _ => {
                let removed = self.database.remove_expired(task, age, self.policy.step).await?;
                Ok(Step { removed, is_last: removed < self.policy.step, archived: Ok(()) })
            }
        }
    }

    /// Archives some half messages, and removes exactly these: others may expire meanwhile.
    async fn archive_half_messages(&self, archive: &dyn Archive<HalfMessageDetail>, age: Duration) -> Result<Step> {
        let old = self.database.old_half_messages(age, ARCHIVED_AT_ONCE).await?;
        let is_last = (old.len() as u64) < ARCHIVED_AT_ONCE;
        let ids: Vec<_> = old.iter().map(|detail| detail.row.id).collect();
        if let Err(error) = store(Expiring::HalfMessages, archive, old).await {
            return Ok(Step::refused(error));
        }
        let removed = self.database.remove_these_half_messages(&ids).await?;
        if is_last {
            self.database.remove_expired(Expiring::HalfMessages, NOTHING, 1).await?;
        }
        Ok(Step { removed, is_last, archived: Ok(()) })
    }

    /// Archives some dead letters, and removes exactly these.
    async fn archive_letters(&self, archive: &dyn Archive<ArchivedLetter>, age: Duration) -> Result<Step> {
        let old = self.database.old_letters(age, LETTERS_AT_ONCE).await?;
        let ids: Vec<_> = old.iter().map(|letter| letter.id).collect();
        let removed = match store(Expiring::DoneLetters, archive, old).await {
            Ok(place) => self.database.remove_archived_letters(&ids, &place, LEASE).await?,
            Err(error) => return Ok(Step::refused(error)),
        };
        // Large payloads make a batch smaller, so only an empty one is the last.
        Ok(Step { removed, is_last: removed == 0, archived: Ok(()) })
    }

    fn age(&self, what: Expiring) -> Span {
        match what {
            Expiring::Sent => self.policy.sent,
            Expiring::HandledIds => self.policy.inbox,
            Expiring::EnqueuedIds => self.policy.enqueued_ids,
            Expiring::Retries => RETRIES_OVERDUE,
            Expiring::Sequences => self.policy.sequences,
            Expiring::DoneLetters => self.policy.dead_letters,
            Expiring::HalfMessages => self.policy.half_messages,
            Expiring::Barriers => self.policy.barriers,
            Expiring::IdempotencyAnswers => self.policy.idempotency_answers,
            Expiring::IdempotencyRecords => self.policy.idempotency,
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

/// What one step did.
struct Step {
    removed: u64,
    is_last: bool,
    archived: Result<()>,
}

impl Step {
    /// The archive failed, so nothing was removed.
    fn refused(error: Error) -> Self {
        Self { removed: 0, is_last: true, archived: Err(error) }
    }
}

/// Stores rows in an archive, and counts them.
async fn store<T>(what: Expiring, archive: &dyn Archive<T>, rows: Vec<T>) -> Result<String> {
    let count = rows.len() as u64;
    if count == 0 {
        return Ok(String::new());
    }
    let stored = archive.store(rows).await;
    match &stored {
        Ok(_) => metrics::counter!("landfall_archived_total", "what" => what.as_str()).increment(count),
        Err(_) => metrics::counter!("landfall_archive_failures_total", "what" => what.as_str()).increment(1),
    }
    if stored.is_ok() {
        fail::fail_point!("housekeeping.after-archive");
    }
    stored
}

impl std::fmt::Debug for Housekeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Housekeeper").field("policy", &self.policy).finish_non_exhaustive()
    }
}

async fn pause(time: Duration, stop: &CancellationToken) {
    tokio::select! { () = tokio::time::sleep(time) => {}, () = stop.cancelled() => {} }
}
