//! Reading the next rows of open windows.

use landfall_core::adapter::OutboxEntry;
use landfall_core::{Error, ErrorKind, Result, RowId};
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::prefetch::{IdRange, Prefetch};
use super::{Cursor, OpenWindow, SnapshotWindow};
use crate::Postgres;
use crate::row::EntryColumns;

pub(super) const DOING: &str = "read the outbox";

/// Ids further apart than this, on average, are looked up one by one instead of as a range.
pub(super) const MAX_SPREAD: i64 = 8;
/// Ids that the first range covers for each row asked for. Every empty range doubles the next one, up to the maximum.
const IDS_PER_ROW: i64 = 16;
const MAX_RANGE: i64 = 1 << 20;

pub(super) fn range_length(limit: usize) -> i64 {
    IDS_PER_ROW.saturating_mul(limit as i64).min(MAX_RANGE)
}

/// Rows of windows, each with whether its key is blocked.
#[derive(Default)]
pub(crate) struct Fetched {
    pub(crate) rows: Vec<(OutboxEntry, bool)>,
    /// Whether any key may be blocked, in any window.
    pub(crate) any_blocked: bool,
    /// Whether the rows belong to a window that was opened by an earlier batch.
    pub(crate) continues_window: bool,
}

impl Postgres {
    /// Fetches the next rows of one of the open windows, which take turns.
    pub(crate) async fn fetch_open_windows(&self, cursor: &mut Cursor, limit: usize) -> Result<Fetched> {
        let count = cursor.windows.len();
        let reader = WindowReader { database: self, incarnation: cursor.incarnation };
        let mut fetched = Fetched::default();
        // With several open windows, the next range is likely to be in another one.
        cursor.prefetch.is_enabled = cursor.windows.iter().filter(|window| window.is_open()).count() == 1;
        for step in 0..count {
            let window = &mut cursor.windows[(cursor.batches / 2 + step) % count];
            while window.is_open() && fetched.rows.is_empty() {
                let part = window.fetch(&reader, &mut cursor.prefetch, limit).await?;
                fetched.any_blocked |= part.any_blocked;
                fetched.rows = part.rows;
            }
            if !fetched.rows.is_empty() {
                break;
            }
        }
        cursor.merge();
        Ok(fetched)
    }
}

impl SnapshotWindow {
    /// Fetches up to `limit` unsettled rows from the front of the open window, listing more of it where needed.
    async fn fetch(&mut self, reader: &WindowReader<'_>, prefetch: &mut Prefetch, limit: usize) -> Result<Fetched> {
        let listed: Vec<RowId> = self.unsettled().take(limit).collect();
        let mut fetched = Fetched::default();
        if !listed.is_empty() {
            fetched = match self.range_of(&listed) {
                Some(range) => self.fetch_range(reader, &range, prefetch, limit).await?,
                None => reader.fetch_ids(&listed).await?,
            };
            fetched.rows.retain(|(entry, _)| listed.binary_search(&entry.row).is_ok());
            // Missing rows were removed by others: by competing relays or by housekeeping.
            let is_there = |id: &RowId| fetched.rows.binary_search_by_key(id, |(entry, _)| entry.row).is_ok();
            self.settled_ahead.extend(listed.iter().filter(|id| !is_there(id)));
            self.advance();
        }
        let is_long = |open: &OpenWindow| open.ids.len() >= 4 * limit;
        while fetched.rows.len() < limit
            && self.open.as_ref().is_some_and(|open| open.listed_to < RowId::MAX && !is_long(open))
        {
            let more = self.fetch_unlisted(reader, prefetch, limit - fetched.rows.len()).await?;
            fetched.any_blocked |= more.any_blocked;
            fetched.rows.extend(more.rows);
        }
        Ok(fetched)
    }

    /// Fetches and lists the rows after `listed_to`. Ids can have gaps (other shards, rolled back or settled rows), so
    /// an empty range is followed by a search for the next id.
    async fn fetch_unlisted(
        &mut self,
        reader: &WindowReader<'_>,
        prefetch: &mut Prefetch,
        limit: usize,
    ) -> Result<Fetched> {
        let Some(open) = &self.open else { return Ok(Fetched::default()) };
        let mut from = open.listed_to;
        let mut length = range_length(limit);
        if from == RowId::MIN {
            from = reader.before_next_id(self, from).await?;
        }
        let mut fetched = Fetched::default();
        while from < RowId::MAX && fetched.rows.is_empty() {
            let upto = from.saturating_add(length);
            let Some(range) = self.range(from, upto, limit as i64) else { break };
            fetched = self.fetch_range(reader, &range, prefetch, limit).await?;
            from = match fetched.rows.last() {
                Some((last, _)) if fetched.rows.len() >= limit => last.row,
                Some(_) => upto,
                None => reader.before_next_id(self, upto).await?,
            };
            length = (length * 2).min(MAX_RANGE);
        }
        if let Some(open) = &mut self.open {
            open.ids.extend(fetched.rows.iter().map(|(entry, _)| entry.row));
            open.listed_to = from;
        }
        self.advance();
        fetched.rows.retain(|(entry, _)| self.has_unsettled(entry.row));
        Ok(fetched)
    }

    /// Fetches a range, unless it was prefetched, and starts to prefetch the one after it.
    async fn fetch_range(
        &self,
        reader: &WindowReader<'_>,
        range: &IdRange,
        prefetch: &mut Prefetch,
        limit: usize,
    ) -> Result<Fetched> {
        let rows = match prefetch.take(range).await {
            Some(rows) => rows,
            None => reader.database.rows_in_range(range).await?,
        };
        self.prefetch(reader.database, prefetch, &rows, limit);
        reader.decode(&rows)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }
}

/// Reads rows of windows as long as the server has not crashed since the cursor was loaded.
pub(super) struct WindowReader<'a> {
    pub(super) database: &'a Postgres,
    pub(super) incarnation: Uuid,
}

impl WindowReader<'_> {
    async fn fetch_ids(&self, ids: &[RowId]) -> Result<Fetched> {
        let query = self.database.query(&self.database.statements().window_ids).bind(ids);
        let rows = self.database.rows(DOING, query).await?;
        self.decode(&rows)
    }

    /// Returns the id before the window's first id above `after`, or `RowId::MAX` if there is none.
    async fn before_next_id(&self, window: &SnapshotWindow, after: RowId) -> Result<RowId> {
        let Some(open) = &window.open else { return Ok(RowId::MAX) };
        let query = self
            .database
            .query_scalar(&self.database.statements().window_next_id)
            .bind(&window.shards)
            .bind(window.lower.as_str())
            .bind(open.upper.as_str())
            .bind(after);
        let next: Option<RowId> = self.database.value(DOING, query).await?;
        Ok(next.map_or(RowId::MAX, |id| id - 1))
    }

    /// Decodes the rows of a range or of listed ids. Their first row is a header, not a message.
    fn decode(&self, rows: &[PgRow]) -> Result<Fetched> {
        let mut fetched = Fetched { rows: Vec::with_capacity(rows.len()), ..Fetched::default() };
        let Some(header) = rows.first() else { return Ok(fetched) };
        let columns = EntryColumns::find(header, "blocked").map_err(self.database.could_not(DOING))?;
        for row in rows {
            if columns.is_header(row).map_err(self.database.could_not(DOING))? {
                fetched.any_blocked = row.try_get("blocked").map_err(self.database.could_not(DOING))?;
                self.check_incarnation(row)?;
            } else {
                fetched.rows.push(columns.entry(row).map_err(self.database.could_not(DOING))?);
            }
        }
        Ok(fetched)
    }

    /// Fails if the server has crashed since the cursor was loaded. The cursor may then refer to transactions that the
    /// server has forgotten and whose ids it hands out again.
    pub(super) fn check_incarnation(&self, header: &PgRow) -> Result<()> {
        let found: Option<Uuid> = header.try_get("message_id").map_err(self.database.could_not(DOING))?;
        if found == Some(self.incarnation) {
            return Ok(());
        }
        let address = self.database.inner.server.address();
        Err(Error::new(ErrorKind::Unavailable, format!("PostgreSQL at {address} has recovered from a crash")))
    }
}
