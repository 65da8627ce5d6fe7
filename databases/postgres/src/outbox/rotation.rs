//! Rotation: emptying partitions of the outbox in which every row is settled. Runs in the background, every so often,
//! in the process that settles.
//!
//! Only the size of the tables depends on it. A partition in use is left for the next time: another session
//! reads it, or a writer that drew its id long ago still inserts.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use landfall_core::Result;
use landfall_sql_toolkit::within_deadline;

use crate::background::Background;
use crate::{Postgres, WeakPostgres};

/// A quarter of a partition of the outbox.
const ROWS: usize = 16_384;
/// A quarter of a partition of the progress table.
const SETTLEMENTS: usize = 1024;
/// PostgreSQL's codes for a lock that was not granted in time, and for a deadlock: of two sessions that read the
/// partition and both want to lock it exclusively, the server refuses the second at once.
const LOCK_NOT_GRANTED: [&str; 2] = ["55P03", "40P01"];

#[derive(Default)]
pub(crate) struct Rotation {
    /// Whether this instance has rotated before. The first settlement rotates what an earlier process left.
    has_run: AtomicBool,
    rows: AtomicUsize,
    settlements: AtomicUsize,
    task: Background,
}

impl Postgres {
    /// Counts `rows` as settled, and starts a rotation in the background if one is due. Returns at once.
    pub(crate) fn rotate_soon(&self, rows: usize) {
        let rotation = &self.inner.rotation;
        let is_first = !rotation.has_run.swap(true, Ordering::Relaxed);
        let rows = rotation.rows.fetch_add(rows, Ordering::Relaxed) + rows;
        let settlements = rotation.settlements.fetch_add(1, Ordering::Relaxed) + 1;
        if is_first || rows >= ROWS || settlements >= SETTLEMENTS {
            rotation.rows.store(0, Ordering::Relaxed);
            rotation.settlements.store(0, Ordering::Relaxed);
            let database = self.downgrade();
            rotation.task.ensure(|| rotate(database));
        }
    }

    /// Empties the partitions of the outbox in which every row is settled, unless other sessions use them. Returns how
    /// many it emptied. Relays do this automatically.
    pub async fn rotate(&self) -> Result<usize> {
        self.empty_partitions().await.map_err(self.could_not("empty partitions of the outbox"))
    }

    async fn empty_partitions(&self) -> sqlx::Result<usize> {
        let mut emptied = 0;
        let partitions: Vec<i32> = self.rotation_step(self.query_scalar(&self.statements().full_partitions)).await?;
        for partition in partitions {
            let keep = self.inner.keep_sent.is_some();
            let empty = self.query_scalar(&self.statements().empty_partition).bind(partition).bind(keep);
            emptied += usize::from(false_if_locked(self.rotation_step(empty).await)?);
        }
        let progress = self.query_scalar(&self.statements().empty_progress);
        false_if_locked(self.rotation_step(progress).await)?;
        Ok(emptied)
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

async fn rotate(database: WeakPostgres) {
    let Some(database) = database.upgrade() else { return };
    if let Err(error) = database.rotate().await {
        tracing::warn!(%error, "outbox rotation failed, settled partitions keep growing");
    }
}
