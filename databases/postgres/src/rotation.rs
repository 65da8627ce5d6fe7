//! Emptying parts of the outbox in which everything is settled, beside the relay: by whoever settles, every so often.
//!
//! Nothing depends on it but the size of the tables. A part that cannot be had now (somebody reads it, somebody who took
//! his id long ago writes into it) is left for the next time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use landfall_core::Result;

use crate::background::Background;
use crate::database::answered;
use crate::{Postgres, WeakPostgres};

/// A quarter of a part.
const ROWS: usize = 16_384;
/// A quarter of a part of the progress table.
const SETTLEMENTS: usize = 1024;
/// PostgreSQL's answers when a lock was not given in time, and when two who read the part want it for themselves: both
/// would wait for the other, so the second is refused at once.
const NOT_NOW: [&str; 2] = ["55P03", "40P01"];

#[derive(Default)]
pub(crate) struct Rotation {
    /// Whether this instance has looked at all: what an earlier process left is looked at first.
    looked: AtomicBool,
    rows: AtomicUsize,
    settlements: AtomicUsize,
    task: Background,
}

impl Postgres {
    /// Says that `rows` were settled, and looks for parts to empty if it is time. Returns at once.
    pub(crate) fn rotate_soon(&self, rows: usize) {
        let rotation = &self.inner.rotation;
        let first = !rotation.looked.swap(true, Ordering::Relaxed);
        let rows = rotation.rows.fetch_add(rows, Ordering::Relaxed) + rows;
        let settlements = rotation.settlements.fetch_add(1, Ordering::Relaxed) + 1;
        if first || rows >= ROWS || settlements >= SETTLEMENTS {
            rotation.rows.store(0, Ordering::Relaxed);
            rotation.settlements.store(0, Ordering::Relaxed);
            let database = self.downgrade();
            rotation.task.ensure(|| rotate(database));
        }
    }

    /// Empties the parts of the outbox in which everything is settled, as far as nobody else needs them right now, and
    /// answers with how many that were. Relays do this by themselves.
    pub async fn rotate(&self) -> Result<usize> {
        self.empty_parts().await.map_err(self.could_not("empty parts of the outbox"))
    }

    async fn empty_parts(&self) -> sqlx::Result<usize> {
        let mut emptied = 0;
        let parts: Vec<i32> = self.rotation_step(self.query_scalar(&self.statements().full_parts)).await?;
        for part in parts {
            let keep = self.inner.keep_sent.is_some();
            let empty = self.query_scalar(&self.statements().empty).bind(part).bind(keep);
            emptied += usize::from(given_up(self.rotation_step(empty).await)?);
        }
        let progress = self.query_scalar(&self.statements().progress_empty);
        given_up(self.rotation_step(progress).await)?;
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
        let mut connection = self.begin_unbroken("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
        let answer = answered(query.fetch_one(&mut *connection)).await?;
        answered(connection.commit()).await?;
        Ok(answer)
    }
}

/// A lock that could not be had is no failure.
fn given_up(answer: sqlx::Result<bool>) -> sqlx::Result<bool> {
    match answer {
        Err(sqlx::Error::Database(error)) if error.code().is_some_and(|code| NOT_NOW.contains(&&*code)) => Ok(false),
        other => other,
    }
}

async fn rotate(database: WeakPostgres) {
    let Some(database) = database.upgrade() else { return };
    if let Err(error) = database.rotate().await {
        tracing::warn!(%error, "parts of the outbox that are settled could not be emptied; they go on growing");
    }
}
