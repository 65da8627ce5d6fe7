//! Rotation: emptying partitions of the outbox in which every row is settled. Runs in the background, in the process
//! that relays: every so often while it settles, and when it finds nothing more to do.
//!
//! A busy relay leaves the partition that new rows go into. An idle one empties that too, so that a drained outbox is
//! empty. It does so once after its start, because an earlier process may have left rows.
//!
//! Only the size of the tables depends on it. A partition in use is left for the next time: another session
//! reads it, or a writer that drew its id long ago still inserts.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use landfall_core::Result;
use landfall_sql_toolkit::within_deadline;

use crate::background::Background;
use crate::{Postgres, WeakPostgres};

/// A quarter of a partition of the outbox.
const ROWS: usize = 16_384;
/// A quarter of a partition of the progress table.
const SETTLEMENTS: usize = 1024;
/// How long an outbox has nothing to send before the partition in use is emptied, for which its writers wait.
const QUIET: Duration = Duration::from_secs(5);
/// Time between two rotations of an idle outbox, for one that sends a message now and then.
const IDLE_SPACING: Duration = Duration::from_secs(60);
/// PostgreSQL's codes for a lock that was not granted in time, and for a deadlock: of two sessions that read the
/// partition and both want to lock it exclusively, the server refuses the second at once.
const LOCK_NOT_GRANTED: [&str; 2] = ["55P03", "40P01"];

#[derive(Default)]
pub(crate) struct Rotation {
    rows: AtomicUsize,
    settlements: AtomicUsize,
    schedule: Mutex<Schedule>,
    task: Background,
}

/// When to rotate while nothing is settled.
#[derive(Default)]
struct Schedule {
    /// The last settlement of this instance.
    settled_at: Option<Instant>,
    /// The last rotation of an idle outbox.
    rotated_at: Option<Instant>,
    /// Whether that rotation left no rows, and nothing was settled since.
    is_clean: bool,
}

impl Schedule {
    /// Returns whether an outbox that has nothing to send at `now` should be rotated, and counts it as rotated then.
    fn is_due(&mut self, now: Instant) -> bool {
        let since = |time: Option<Instant>| time.map_or(Duration::MAX, |time| now.saturating_duration_since(time));
        if self.is_clean || since(self.settled_at) < QUIET || since(self.rotated_at) < IDLE_SPACING {
            return false;
        }
        (self.rotated_at, self.is_clean) = (Some(now), true);
        true
    }
}

impl Postgres {
    /// Counts `rows` as settled, and starts a rotation in the background if one is due. Returns at once.
    pub(crate) fn rotate_soon(&self, rows: usize) {
        let rotation = &self.inner.rotation;
        let is_first = {
            let mut schedule = rotation.schedule();
            schedule.is_clean = false;
            schedule.settled_at.replace(Instant::now()).is_none()
        };
        let rows = rotation.rows.fetch_add(rows, Ordering::Relaxed) + rows;
        let settlements = rotation.settlements.fetch_add(1, Ordering::Relaxed) + 1;
        // The first settlement rotates what an earlier process left.
        if is_first || rows >= ROWS || settlements >= SETTLEMENTS {
            rotation.rows.store(0, Ordering::Relaxed);
            rotation.settlements.store(0, Ordering::Relaxed);
            let database = self.downgrade();
            rotation.task.ensure(|| rotate(database, Extent::Full));
        }
    }

    /// For a relay that found nothing to send: starts a rotation of all partitions in the background if one is due.
    pub(crate) fn rotate_if_quiet(&self) {
        let rotation = &self.inner.rotation;
        if rotation.schedule().is_due(Instant::now()) {
            let database = self.downgrade();
            rotation.task.ensure(|| rotate(database, Extent::All));
        }
    }

    /// Empties the partitions of the outbox in which every row is settled, unless other sessions use them. Returns how
    /// many it emptied. Relays do this automatically.
    pub async fn rotate(&self) -> Result<usize> {
        Ok(self.empty_partitions(Extent::Full).await?.emptied)
    }

    async fn empty_partitions(&self, extent: Extent) -> Result<Rotated> {
        self.try_empty_partitions(extent).await.map_err(self.could_not("empty partitions of the outbox"))
    }

    async fn try_empty_partitions(&self, extent: Extent) -> sqlx::Result<Rotated> {
        let mut rotated = Rotated::default();
        let full = self.query_scalar(&self.statements().full_partitions).bind(extent == Extent::All);
        let partitions: Vec<i32> = self.rotation_step(full).await?;
        for partition in partitions {
            let keep = self.inner.keep_sent.is_some();
            let empty = self.query_scalar(&self.statements().empty_partition).bind(partition).bind(keep);
            match false_if_locked(self.rotation_step(empty).await)? {
                true => rotated.emptied += 1,
                false => rotated.left += 1,
            }
        }
        let progress = self.query_scalar(&self.statements().empty_progress);
        false_if_locked(self.rotation_step(progress).await)?;
        Ok(rotated)
    }

    async fn rotation_step<T>(
        &self,
        query: sqlx::query::QueryScalar<'static, sqlx::Postgres, T, sqlx::postgres::PgArguments>,
    ) -> sqlx::Result<T>
    where
        T: Send + Unpin,
        (T,): for<'r> sqlx::FromRow<'r, sqlx::postgres::PgRow> + Send + Unpin,
    {
        let mut connection = self.try_begin("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
        let answer = within_deadline(query.fetch_one(&mut *connection)).await?;
        within_deadline(connection.commit()).await?;
        Ok(answer)
    }
}

/// Returns false if a lock was not granted, which is not a failure.
fn false_if_locked(answer: sqlx::Result<bool>) -> sqlx::Result<bool> {
    match answer {
        Err(sqlx::Error::Database(error)) if error.code().is_some_and(|code| LOCK_NOT_GRANTED.contains(&&*code)) => {
            Ok(false)
        }
        other => other,
    }
}

async fn rotate(database: WeakPostgres, extent: Extent) {
    let Some(database) = database.upgrade() else { return };
    let is_clean = match database.empty_partitions(extent).await {
        Ok(rotated) => rotated.left == 0,
        Err(error) => {
            tracing::warn!(%error, "outbox rotation failed, settled partitions keep growing");
            false
        }
    };
    if !is_clean {
        database.inner.rotation.schedule().is_clean = false;
    }
}

/// The partitions that a rotation looks at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// All but the one that new rows go into.
    Full,
    All,
}

/// What a rotation did with the partitions that have rows.
#[derive(Default)]
struct Rotated {
    emptied: usize,
    /// Partitions with unsettled rows, and those in use by other sessions.
    left: usize,
}

impl Rotation {
    fn schedule(&self) -> std::sync::MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_outbox_is_rotated_at_start_and_after_each_quiet_spell() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut schedule = Schedule::default();
        assert!(schedule.is_due(at(0)), "an earlier process may have left rows");
        assert!(!schedule.is_due(at(600)), "nothing was settled since");
        (schedule.settled_at, schedule.is_clean) = (Some(at(600)), false);
        assert!(!schedule.is_due(at(603)), "the outbox is not quiet yet");
        assert!(schedule.is_due(at(605)));
        (schedule.settled_at, schedule.is_clean) = (Some(at(610)), false);
        assert!(!schedule.is_due(at(620)), "a message now and then does not truncate every time");
        assert!(schedule.is_due(at(665)));
    }
}
