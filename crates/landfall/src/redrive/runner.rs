//! The loop of the runner: settle, then hand back what the pace of each job allows.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_core::adapter::{Epoch, Lease, LeaseName};
use landfall_core::{
    ActiveRedrive, ErrorKind, Holder, Leases, MessageId, Ramp, RedriveId, RedriveQueue, RedriveState, Result,
    Timestamp, TokenBucket,
};
use tokio_util::sync::CancellationToken;

use super::Options;
use crate::call_deadline::CallDeadline;
use crate::consume::sleep_unless_stopped;

/// The lease of the one runner that works.
const LEASE: &str = "redrive";

/// The most letters that are handed back in one transaction.
const BATCH: u64 = 200;

/// How often old jobs are removed, and how many rows at once.
const CLEANING: Duration = Duration::from_secs(600);
const CLEANED: usize = 1000;

/// The pause after a failed look at the database.
const BACKOFF: Duration = Duration::from_secs(1);

/// Runs the redrive jobs of a database. Any number may run on one database; one of them works.
///
/// ```
/// use std::sync::Arc;
///
/// use landfall::prelude::*;
/// use landfall::redrive::{Options, Runner};
/// use landfall::sqlite::{self, Sqlite};
/// use tokio_util::sync::CancellationToken;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let database = Arc::new(Sqlite::open("sqlite::memory:", sqlite::Options::default()).await?);
/// database.migrate().await?;
/// let stop = CancellationToken::new();
/// # stop.cancel();
/// Runner::new(database.clone(), database, Options::default())?.run(stop).await?;
/// # Ok(())
/// # }
/// ```
pub struct Runner {
    queue: Arc<dyn RedriveQueue>,
    leases: Arc<dyn Leases>,
    holder: Holder,
    options: Options,
}

/// What a runner remembers between two looks.
#[derive(Default)]
struct Memory {
    lease: Option<Lease>,
    buckets: HashMap<RedriveId, (TokenBucket, Instant)>,
    /// When the last old job was removed; `None` if there may be more.
    cleaned: Option<Instant>,
}

impl Runner {
    /// Fails with kind `Invalid` if an option is out of range.
    pub fn new(queue: Arc<dyn RedriveQueue>, leases: Arc<dyn Leases>, options: Options) -> Result<Self> {
        options.check()?;
        Ok(Self { queue, leases, holder: Holder(MessageId::new().to_string()), options })
    }

    /// Works until `stop` is cancelled, and then releases its lease.
    ///
    /// While the database is unavailable it backs off. Fails only on errors that are not temporary, such as a schema
    /// that this build does not support.
    pub async fn run(self, stop: CancellationToken) -> Result<()> {
        let mut memory = Memory::default();
        while !stop.is_cancelled() {
            let pause = match self.look(&mut memory).await {
                Ok(true) => self.options.pace,
                Ok(false) => self.options.interval,
                // Another runner took over, which this one learns from the epoch.
                Err(error) if error.is_temporary() || error.kind() == ErrorKind::Conflict => {
                    tracing::warn!(%error, "redrive jobs unavailable, backing off");
                    memory.lease = None;
                    BACKOFF
                }
                Err(error) => {
                    tracing::error!(%error, "redrive runner stopped; redrive jobs wait");
                    return Err(error);
                }
            };
            sleep_unless_stopped(pause, &stop).await;
        }
        if let Some(lease) = memory.lease
            && let Err(error) = CallDeadline::STATEMENT.run(self.leases.release(&[lease])).await
        {
            tracing::debug!(%error, "releasing the redrive lease failed; it will expire");
        }
        Ok(())
    }

    /// Works on every active job once; returns whether there was one.
    async fn look(&self, memory: &mut Memory) -> Result<bool> {
        let Some(epoch) = self.hold(memory).await? else { return Ok(false) };
        let jobs = CallDeadline::STATEMENT.run(self.queue.active_redrives()).await?;
        let known: HashSet<RedriveId> = jobs.iter().map(|job| job.id).collect();
        memory.buckets.retain(|id, _| known.contains(id));
        for job in &jobs {
            if !memory.lease.as_ref().is_some_and(Lease::is_live) {
                return Ok(true);
            }
            self.work(memory, job.id, epoch).await?;
        }
        self.clean(memory).await;
        Ok(!jobs.is_empty())
    }

    /// Removes old jobs from time to time. A failure delays it and stops no job.
    async fn clean(&self, memory: &mut Memory) {
        let Some(keep) = self.options.keep else { return };
        if memory.cleaned.is_some_and(|last| last.elapsed() < CLEANING) {
            return;
        }
        memory.cleaned = Some(Instant::now());
        let keep = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
        let before = Timestamp::from_millis(Timestamp::now().as_millis().saturating_sub(keep));
        match CallDeadline::STATEMENT.run(self.queue.remove_redrives(before, CLEANED)).await {
            Ok(0) => {}
            Ok(removed) => {
                metrics::counter!("landfall_housekeeping_removed_total", "what" => "redrives").increment(removed);
                memory.cleaned = memory.cleaned.filter(|_| removed < CLEANED as u64);
            }
            Err(error) => tracing::warn!(%error, "removing old redrive jobs failed"),
        }
    }

    /// Acquires or extends the lease; `None` while another runner has it.
    async fn hold(&self, memory: &mut Memory) -> Result<Option<Epoch>> {
        let needs_renewal =
            memory.lease.as_ref().is_none_or(|lease| Instant::now() + self.options.lease / 2 > lease.until);
        if needs_renewal {
            let name = LeaseName(LEASE.into());
            let acquired = self.leases.acquire(&name, &self.holder, self.options.lease);
            memory.lease = CallDeadline::STATEMENT.run(acquired).await?;
        }
        Ok(memory.lease.as_ref().map(|lease| lease.epoch))
    }

    async fn work(&self, memory: &mut Memory, id: RedriveId, epoch: Epoch) -> Result<()> {
        let settled = self.queue.settle_redrive(id, epoch, &self.options.stop);
        let job = CallDeadline::STATEMENT.run(settled).await?;
        if job.state != RedriveState::Running {
            if job.in_flight == 0 {
                let (state, counts) = (job.state.as_str(), job.counts);
                tracing::info!(%id, state, ?counts, "redrive job ended or paused");
            }
            return Ok(());
        }
        let limit = allowance(memory, &job);
        if limit == 0 {
            return Ok(());
        }
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let dispatched = self.queue.dispatch_redrive(id, epoch, limit, &self.options.guards);
        let result = CallDeadline::STATEMENT.run(dispatched).await?;
        if let Some((bucket, _)) = memory.buckets.get_mut(&id) {
            bucket.take(result.dispatched.len() as u64);
        }
        tracing::debug!(%id, dispatched = result.dispatched.len(), settled = result.settled, "letters handed back");
        Ok(())
    }
}

/// Returns how many letters may be handed back now: by the job's concurrency, its ramp and its rate.
fn allowance(memory: &mut Memory, job: &ActiveRedrive) -> u64 {
    let room = u64::from(job.options.concurrency).saturating_sub(job.in_flight);
    let ramp = match job.options.ramp {
        true => Ramp { matched: job.counts.matched }.allowed(job.counts.settled()).saturating_sub(job.begun()),
        false => u64::MAX,
    };
    let tokens = match job.options.rate_per_s {
        Some(rate) => {
            let (bucket, since) =
                memory.buckets.entry(job.id).or_insert_with(|| (TokenBucket::new(rate), Instant::now()));
            bucket.refill(since.elapsed());
            *since = Instant::now();
            bucket.available()
        }
        None => u64::MAX,
    };
    room.min(ramp).min(tokens).min(BATCH)
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner").field("holder", &self.holder).field("options", &self.options).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use landfall_core::{RedriveCounts, RedriveLane, RedriveOptions};

    use super::*;

    fn job(matched: u64, settled: u64, in_flight: u64) -> ActiveRedrive {
        let counts = RedriveCounts { matched, succeeded: settled, remaining: matched - settled, ..Default::default() };
        let options = RedriveOptions { rate_per_s: None, concurrency: 10, ..RedriveOptions::new(RedriveLane::Main) };
        ActiveRedrive { id: MessageId::new(), state: RedriveState::Running, options, counts, in_flight }
    }

    #[test]
    fn strictest_limit_counts() {
        let allowed = |job: &ActiveRedrive| allowance(&mut Memory::default(), job);
        assert_eq!((allowed(&job(1000, 0, 0)), allowed(&job(1000, 0, 3))), (5, 2), "the first step has 5 letters");
        assert_eq!((allowed(&job(1000, 500, 0)), allowed(&job(1000, 500, 10))), (10, 0), "ten in flight");
        let mut slow = job(1000, 500, 0);
        slow.options.rate_per_s = Some(1);
        assert_eq!(allowed(&slow), 0, "a new bucket is empty");
    }
}
