//! The relay's next batch: rows of an open window or a new one, and waiting rows that are due.

use landfall_core::adapter::OutboxEntry;
use landfall_core::{Mode, Result, RowId};
use uuid::Uuid;

use super::settle::Changes;
use super::window::{Cursor, Fetched, ShardLease};
use crate::Postgres;
use crate::row::EntryColumns;

impl Postgres {
    /// Loads the progress of the leases' shards into the cursor, unless it is there already.
    pub(crate) async fn load(&self, cursor: &mut Cursor, leases: Vec<ShardLease>) -> Result<()> {
        if cursor.leases == leases && !cursor.windows.is_empty() {
            return Ok(());
        }
        self.adopt_restored_tables().await?;
        let doing = "read the relays' progress";
        let shards: Vec<i16> = leases.iter().map(|lease| lease.shard).collect();
        let mut session = self.session().await?;
        let incarnation: Uuid = self
            .query_scalar(&self.statements().incarnation)
            .fetch_one(session.connection())
            .await
            .map_err(self.could_not(doing))?;
        let rows = self.query(&self.statements().progress).bind(&shards).fetch_all(session.connection()).await;
        let rows = rows.map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        cursor.load(leases, incarnation, &rows)
    }

    pub(crate) async fn next_batch(&self, cursor: &mut Cursor, limit: usize) -> Result<Vec<OutboxEntry>> {
        cursor.waiting.clear();
        cursor.unrepeatable.clear();
        cursor.quiet = None;
        let mut batch = Vec::new();
        let mut any_blocked = false;
        let continues_window = loop {
            let fetched = self.fetch_or_open(cursor, limit).await?;
            any_blocked |= fetched.any_blocked;
            if fetched.rows.is_empty() {
                break false;
            }
            let blocked: Vec<RowId> =
                fetched.rows.iter().filter(|(_, is_blocked)| *is_blocked).map(|(entry, _)| entry.row).collect();
            batch = fetched.rows.into_iter().filter(|(_, is_blocked)| !is_blocked).map(|(entry, _)| entry).collect();
            if !blocked.is_empty() && self.apply(cursor, &Changes::blocked(blocked)).await?.is_none() {
                // Another relay has moved these shards on, and may be about to send the rows just read.
                return Ok(Vec::new());
            }
            if !batch.is_empty() {
                break fetched.continues_window;
            }
        };
        if continues_window && batch.len() < limit {
            let newer = self.peek_next_windows(cursor, &batch, limit - batch.len()).await?;
            batch.extend(newer);
        }
        if any_blocked {
            let mut due = self.due_rows(cursor, limit).await?;
            // Neither new nor waiting rows may starve the other.
            due.truncate(limit.saturating_sub(batch.len()).max(limit.div_ceil(2)));
            cursor.waiting.extend(due.iter().map(|entry| entry.row));
            due.append(&mut batch);
            batch = due;
        }
        batch.truncate(limit);
        if batch.is_empty() && !any_blocked {
            cursor.found_nothing();
        }
        let is_unrepeatable =
            |entry: &&OutboxEntry| entry.message.as_ref().map_or(true, |message| message.mode == Mode::AtMostOnce);
        cursor.unrepeatable.extend(batch.iter().filter(is_unrepeatable).map(|entry| entry.row));
        Ok(batch)
    }

    /// Fetches rows of open windows or opens new ones. Returns no rows only if there are none.
    ///
    /// New and open windows take turns, so that a long window does not hold up the others. After both, a window that
    /// turned out to be long is open, and one that turned out to be finished has a successor.
    async fn fetch_or_open(&self, cursor: &mut Cursor, limit: usize) -> Result<Fetched> {
        cursor.batches = cursor.batches.wrapping_add(1);
        let had_open_windows = cursor.windows.iter().any(|window| window.is_open());
        let opens_first = cursor.batches.is_multiple_of(2);
        let mut has_opened = false;
        let mut fetched = Fetched::default();
        for opens in [opens_first, !opens_first, true, false] {
            if opens && has_opened && !had_open_windows {
                continue;
            }
            let part = if opens {
                self.open_windows(cursor, limit).await?
            } else {
                self.fetch_open_windows(cursor, limit).await?
            };
            has_opened |= opens;
            fetched.any_blocked |= part.any_blocked;
            if !part.rows.is_empty() {
                fetched.rows = part.rows;
                fetched.continues_window = !opens;
                break;
            }
        }
        Ok(fetched)
    }

    async fn due_rows(&self, cursor: &Cursor, limit: usize) -> Result<Vec<OutboxEntry>> {
        let doing = "read waiting messages";
        let due = self.query(&self.statements().due).bind(cursor.shards());
        let rows = self.rows(doing, due.bind(i64::try_from(limit).unwrap_or(i64::MAX))).await?;
        let Some(first) = rows.first() else { return Ok(Vec::new()) };
        let columns = EntryColumns::find(first, "blocked").map_err(self.could_not(doing))?;
        rows.iter().map(|row| Ok(columns.entry(row)?.0)).collect::<sqlx::Result<_>>().map_err(self.could_not(doing))
    }
}
