//! Reading the next range of a long window while the relay decodes, publishes and settles the current one.
//!
//! The rows of a window never change, so it does not matter when they are read. Whether a key is blocked does change:
//! nothing is prefetched while any key is blocked, and prefetched rows are dropped as soon as a message fails.

use landfall_core::{Result, RowId};
use landfall_sql_toolkit::CALL_DEADLINE;
use sqlx::postgres::PgRow;
use sqlx::{ColumnIndex, Row};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::SnapshotWindow;
use super::fetch::{DOING, MAX_SPREAD, range_length};
use crate::Postgres;

/// After a batch with more payload bytes than this, the next one is not held in memory at the same time.
const MAX_BYTES: usize = 4 << 20;

/// A part of a window, by ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IdRange {
    shards: Vec<i16>,
    lower: String,
    upper: String,
    after: RowId,
    upto: RowId,
    limit: i64,
}

/// At most one range, which is being read.
#[derive(Debug, Default)]
pub(crate) struct Prefetch {
    pub(super) is_enabled: bool,
    reading: Option<(IdRange, JoinHandle<Result<Vec<PgRow>>>)>,
}

impl Prefetch {
    /// Waits for the rows of `range`, if they are being prefetched. `None` after an error: the caller reads again.
    pub(super) async fn take(&mut self, range: &IdRange) -> Option<Vec<PgRow>> {
        let (_, reading) = self.reading.take().filter(|(read, _)| read == range)?;
        reading.await.ok()?.ok().filter(|rows| is_unblocked(rows))
    }

    pub(crate) fn discard(&mut self) {
        self.reading = None;
    }
}

impl Postgres {
    pub(super) async fn rows_in_range(&self, range: &IdRange) -> Result<Vec<PgRow>> {
        let query = self
            .query(&self.statements().window_range)
            .bind(&range.shards)
            .bind(&range.lower)
            .bind(&range.upper)
            .bind(range.after)
            .bind(range.upto)
            .bind(range.limit);
        self.rows(DOING, query).await
    }
}

impl SnapshotWindow {
    /// Starts to read the range that is needed next if all of `rows`, which were just fetched, are published.
    pub(super) fn prefetch(&self, database: &Postgres, prefetch: &mut Prefetch, rows: &[PgRow], limit: usize) {
        if !prefetch.is_enabled || !is_unblocked(rows) || payload_bytes(rows) > MAX_BYTES {
            return;
        }
        let Some(last) = rows.last().and_then(|row| row.try_get::<Option<RowId>, _>("id").ok()?) else { return };
        // The header counts. With fewer rows than asked for, the window is at its end, or the rest has wide gaps.
        let is_full = rows.len() > limit;
        let Some(range) = self.range_beyond(last, limit).filter(|_| is_full) else { return };
        let (database, reading) = (database.clone(), range.clone());
        // The relay may never ask for it. A range that times out is read again, as one that fails.
        let read = async move {
            timeout(CALL_DEADLINE, database.rows_in_range(&reading)).await.unwrap_or_else(|_| Ok(Vec::new()))
        };
        prefetch.reading = Some((range, tokio::spawn(read)));
    }

    /// Returns the range of the ids `listed`, if they are close enough together to be read as one.
    pub(super) fn range_of(&self, listed: &[RowId]) -> Option<IdRange> {
        let (first, last) = (listed.first()?, listed.last()?);
        (last - first < MAX_SPREAD * listed.len() as i64).then(|| self.range(first - 1, *last, i64::MAX))?
    }

    pub(super) fn range(&self, after: RowId, upto: RowId, limit: i64) -> Option<IdRange> {
        let open = self.open.as_ref()?;
        let (lower, upper) = (self.lower.as_str().to_owned(), open.upper.as_str().to_owned());
        Some(IdRange { shards: self.shards.clone(), lower, upper, after, upto, limit })
    }

    /// Returns the range after `last`, up to which the window has just been read.
    fn range_beyond(&self, last: RowId, limit: usize) -> Option<IdRange> {
        let open = self.open.as_ref()?;
        let listed: Vec<RowId> = self.unsettled().skip_while(|id| *id <= last).take(limit).collect();
        if !listed.is_empty() {
            return self.range_of(&listed);
        }
        let has_unlisted = open.listed_to < RowId::MAX;
        has_unlisted.then(|| self.range(last, last.saturating_add(range_length(limit)), limit as i64))?
    }
}

fn payload_bytes(rows: &[PgRow]) -> usize {
    let Some(payload) = rows.first().and_then(|header| "payload".index(header).ok()) else { return 0 };
    let bytes = |row: &PgRow| row.try_get_raw(payload).ok()?.as_bytes().ok().map(<[u8]>::len);
    rows.iter().filter_map(bytes).sum()
}

/// Returns what the header, the first row, says: whether no key is blocked.
fn is_unblocked(rows: &[PgRow]) -> bool {
    rows.first().is_some_and(|header| matches!(header.try_get("blocked"), Ok(false)))
}
