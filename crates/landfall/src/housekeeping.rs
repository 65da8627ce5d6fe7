//! Housekeeping: what nobody needs any more goes, in steps that nobody notices.
//!
//! ```text
//!   every so often: the lease ─▶ sent messages ─▶ handled ids ─▶ done dead letters ─▶ the lease is given back
//!                     (and once an hour what was reached with entities)
//!                                └── each in small steps, with a pause as long as the step took ──┘
//! ```
//!
//! Run one beside every relay and every consumer: a lease sees to it that one at a time works on a database. How long an
//! id must be remembered is not for this module to judge: let a [`RetentionPlan`](landfall_core::RetentionPlan) do it,
//! before anything starts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_core::{ErrorKind, Holder, Housekeeping, Lease, LeaseName, Leases, Result, Span};
use tokio_util::sync::CancellationToken;

/// Removes from one database what its policy says has been kept long enough.
pub struct Housekeeper {
    database: Arc<dyn Housekeeping>,
    leases: Arc<dyn Leases>,
    policy: Policy,
}

/// How long what is kept, and how it goes.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Sent messages, where the database keeps them (`keep_sent`).
    pub sent: Span,
    /// The ids of handled messages: the window within which a copy is recognised.
    pub inbox: Span,
    /// What was reached with each entity, from the last message that was applied, for consumers that check numbers. One
    /// that is forgotten begins anew with the next message that comes, so this is for entities that come to an end.
    pub sequences: Span,
    /// Dead letters, from when they are done. One that is not done stays, however old it is.
    pub dead_letters: Span,
    /// The most that goes in one transaction.
    pub step: u64,
    /// Between two rounds.
    pub interval: Duration,
    /// How long a housekeeper may be silent before another takes over.
    pub lease_ttl: Duration,
    /// Who holds the lease: must be new for every process.
    pub holder: Holder,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            sent: Span::ZERO,
            inbox: Span::days(45),
            sequences: Span::Forever,
            dead_letters: Span::days(30),
            step: 500,
            interval: Duration::from_secs(30),
            lease_ttl: Duration::from_secs(30),
            holder: Holder(format!("{}-{:08x}", std::process::id(), rand::random::<u32>())),
        }
    }
}

const LEASE: &str = "housekeeping";

/// There is no index by the time of the last message, so that no message has to write to one: each look reads all.
const SEQUENCES_EVERY: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    Sent,
    Inbox,
    Sequences,
    DeadLetters,
}

impl Housekeeper {
    pub fn new(database: Arc<dyn Housekeeping>, leases: Arc<dyn Leases>, policy: Policy) -> Self {
        Self { database, leases, policy }
    }

    /// Works until `stop` is cancelled. What fails is tried again in the next round; `Err` only for what no round mends:
    /// a schema that this build does not understand.
    pub async fn run(self, stop: CancellationToken) -> Result<()> {
        let mut looked_at_sequences = None;
        while !stop.is_cancelled() {
            let mut tasks = vec![Task::Sent, Task::Inbox, Task::DeadLetters];
            if looked_at_sequences.is_none_or(|last: Instant| last.elapsed() >= SEQUENCES_EVERY) {
                tasks.push(Task::Sequences);
            }
            match self.round(&tasks, &stop).await {
                Err(error) if error.kind() == ErrorKind::Schema => return Err(error),
                Err(error) => tracing::warn!(%error, "housekeeping failed; it is tried again"),
                Ok(true) if tasks.contains(&Task::Sequences) => looked_at_sequences = Some(Instant::now()),
                Ok(_) => {}
            }
            pause(self.policy.interval, &stop).await;
        }
        Ok(())
    }

    /// Whether it was this one's turn.
    async fn round(&self, tasks: &[Task], stop: &CancellationToken) -> Result<bool> {
        let name = LeaseName(LEASE.to_owned());
        let Some(mut lease) = self.leases.acquire(&name, &self.policy.holder, self.policy.lease_ttl).await? else {
            return Ok(false);
        };
        let result = self.tidy(tasks, &mut lease, stop).await;
        self.leases.release(&[lease]).await?;
        result.map(|()| true)
    }

    async fn tidy(&self, tasks: &[Task], lease: &mut Lease, stop: &CancellationToken) -> Result<()> {
        for task in tasks.iter().copied() {
            let mut removed = 0;
            while let Some(age) = self.age(task).time() {
                if stop.is_cancelled() || !self.is_still_ours(lease).await? {
                    return Ok(());
                }
                let started = Instant::now();
                let step = self.step(task, age).await?;
                removed += step;
                if step < self.policy.step {
                    break;
                }
                // Half of the time is everybody else's.
                pause(started.elapsed(), stop).await;
            }
            if removed > 0 {
                metrics::counter!("landfall_housekeeping_removed_total", "what" => task.name()).increment(removed);
                tracing::info!(what = task.name(), removed, "kept long enough, and removed");
            }
        }
        Ok(())
    }

    fn age(&self, task: Task) -> Span {
        match task {
            Task::Sent => self.policy.sent,
            Task::Inbox => self.policy.inbox,
            Task::Sequences => self.policy.sequences,
            Task::DeadLetters => self.policy.dead_letters,
        }
    }

    async fn step(&self, task: Task, age: Duration) -> Result<u64> {
        let at_most = self.policy.step.max(1);
        match task {
            Task::Sent => self.database.remove_sent(age, at_most).await,
            Task::Inbox => self.database.forget_handled(age, at_most).await,
            Task::Sequences => self.database.forget_sequences(age, at_most).await,
            Task::DeadLetters => self.database.remove_done_letters(age, at_most).await,
        }
    }

    /// Renewed in good time. Who lost it stops: two at once would do no harm, and no good either.
    async fn is_still_ours(&self, lease: &mut Lease) -> Result<bool> {
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

impl Task {
    fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Inbox => "inbox",
            Self::Sequences => "sequences",
            Self::DeadLetters => "dead_letters",
        }
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
