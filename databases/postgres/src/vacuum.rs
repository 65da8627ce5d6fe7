//! Keeping the outbox fast: what was published leaves dead entries at the front of the primary key, and every batch
//! walks over them until they are vacuumed.
//!
//! Autovacuum looks once a minute; in a minute a relay removes millions of rows, and by then walking over them costs
//! more than reading the batch. So whoever settles vacuums after every [`ROWS`] rows, one at a time. A role that does
//! not own the table is told so by the server in a warning, and autovacuum remains.

use std::sync::atomic::{AtomicUsize, Ordering};

use sqlx::PgPool;

use crate::background::Background;
use crate::statements::Sql;

/// At some ten nanoseconds each, walking over this many takes a fraction of the time of a batch.
const ROWS: usize = 50_000;

#[derive(Default)]
pub(crate) struct Vacuum {
    removed: AtomicUsize,
    task: Background,
}

impl Vacuum {
    /// Says that `rows` were removed, and starts a vacuum if they are enough by now. Returns at once.
    pub(crate) fn removed(&self, rows: usize, pool: &PgPool, statement: &Sql) {
        let before = self.removed.fetch_add(rows, Ordering::Relaxed);
        // With a single connection a vacuum would stand in the way of what it is to speed up.
        if before + rows < ROWS || pool.options().get_max_connections() < 2 {
            return;
        }
        self.removed.store(0, Ordering::Relaxed);
        self.task.ensure(|| vacuum(pool.clone(), statement.clone()));
    }
}

async fn vacuum(pool: PgPool, statement: Sql) {
    if let Err(error) = sqlx::raw_sql(statement.text()).execute(&pool).await {
        tracing::debug!(%error, "the outbox was not vacuumed");
    }
}
