//! Opening windows: the rows that have become visible since the last window's snapshot.

use std::collections::BTreeSet;

use landfall_core::adapter::OutboxEntry;
use landfall_core::{Result, RowId};
use serde_json::json;
use sqlx::postgres::PgRow;
use sqlx::{ColumnIndex, Row};

use super::fetch::{DOING, WindowReader};
use super::watermark::{Watermark, Watermarks};
use super::{Cursor, Fetched, Snapshot};
use crate::Postgres;
use crate::row::EntryColumns;

/// The ids of a window with up to this many rows are listed when it opens; a larger window is listed range by range.
const MAX_LISTED: i32 = 10_000;

impl Postgres {
    /// Opens a window for all shards that have none. All end at one snapshot, so that their shards have made equal
    /// progress once they are settled.
    pub(crate) async fn open_windows(&self, cursor: &mut Cursor, limit: usize) -> Result<Fetched> {
        if cursor.watermarks.is_due() {
            self.take_watermark(&mut cursor.watermarks).await?;
        }
        let closed = cursor.windows.iter().enumerate().filter(|(_, window)| !window.is_open());
        let starts = closed.map(|(at, window)| (at, &window.shards, &window.lower));
        let rows = self.new_rows(&cursor.watermarks, starts, limit).await?;
        let mut fetched = Fetched::default();
        // The first row is a header; without closed windows there are no rows.
        let Some(header) = rows.first() else { return Ok(fetched) };
        let top: RowId = header.try_get("top").map_err(self.could_not(DOING))?;
        if !cursor.watermarks.reach(top) {
            // Only the next read finds the rows below, so no probe may replace it.
            cursor.probed_top = None;
            return Ok(fetched);
        }
        let reader = WindowReader { database: self, incarnation: cursor.incarnation };
        let columns = EntryColumns::find(header, "blocked").map_err(self.could_not(DOING))?;
        let window_column = "at".index(header).map_err(self.could_not(DOING))?;
        for row in &rows {
            let at: i32 = row.try_get(window_column).map_err(self.could_not(DOING))?;
            let Some(window) = cursor.windows.get_mut(at as usize) else { continue };
            if columns.is_header(row).map_err(self.could_not(DOING))? {
                reader.check_incarnation(row)?;
                let (upper, ids, above) = opening(row).map_err(self.could_not(DOING))?;
                fetched.any_blocked |= row.try_get::<bool, _>("blocked").map_err(self.could_not(DOING))?;
                window.open(Snapshot::parse(upper)?, ids, above);
            } else {
                let (entry, is_blocked) = columns.entry(row).map_err(self.could_not(DOING))?;
                if window.has_unsettled(entry.row) {
                    fetched.rows.push((entry, is_blocked));
                }
            }
        }
        cursor.merge();
        Ok(fetched)
    }

    /// Takes a watermark: rows of transactions that start later have ids above it.
    async fn take_watermark(&self, watermarks: &mut Watermarks) -> Result<()> {
        let doing = "take a watermark of ids and transactions";
        let row = self.row(doing, self.query(&self.statements().watermark)).await?;
        let id = row.try_get("id").map_err(self.could_not(doing))?;
        let xid: Option<&str> = row.try_get("xid").map_err(self.could_not(doing))?;
        if let Some(xid) = xid.and_then(|xid| xid.parse().ok()) {
            watermarks.push(Watermark { id, xid });
        }
        Ok(())
    }

    /// Returns rows that have become visible after open windows whose rows are all settled or in `batch`. The windows
    /// stay open: a message that remains unsettled delays its own key, and not the next window of all keys.
    ///
    /// Leaves out windows with other unsettled rows, which must go out before newer rows.
    pub(crate) async fn peek_next_windows(
        &self,
        cursor: &Cursor,
        batch: &[OutboxEntry],
        limit: usize,
    ) -> Result<Vec<OutboxEntry>> {
        let in_batch: BTreeSet<RowId> = batch.iter().map(|entry| entry.row).collect();
        let starts = cursor.windows.iter().enumerate().filter_map(|(at, window)| {
            let open = window.open.as_ref().filter(|open| open.listed_to == RowId::MAX)?;
            let is_handed_out = |id: &RowId| window.settled_ahead.contains(id) || in_batch.contains(id);
            open.ids.iter().all(is_handed_out).then_some((at, &window.shards, &open.upper))
        });
        let rows = self.new_rows(&cursor.watermarks, starts, limit).await?;
        let Some(header) = rows.first() else { return Ok(Vec::new()) };
        let columns = EntryColumns::find(header, "blocked").map_err(self.could_not(DOING))?;
        let mut newer = Vec::new();
        for row in &rows {
            if columns.is_header(row).map_err(self.could_not(DOING))? {
                continue;
            }
            let (entry, is_blocked) = columns.entry(row).map_err(self.could_not(DOING))?;
            let is_settled = cursor.windows.iter().any(|window| window.settled_ahead.contains(&entry.row));
            if !is_blocked && !is_settled {
                newer.push(entry);
            }
        }
        newer.truncate(limit);
        Ok(newer)
    }

    /// Reads the rows of each window's shards that are visible now and not in its snapshot, all in one snapshot.
    async fn new_rows<'a>(
        &self,
        watermarks: &Watermarks,
        starts: impl Iterator<Item = (usize, &'a Vec<i16>, &'a Snapshot)>,
        limit: usize,
    ) -> Result<Vec<PgRow>> {
        let starts: Vec<_> =
            starts.map(|(at, shards, lower)| json!({ "at": at, "shards": shards, "s1": lower.as_str() })).collect();
        if starts.is_empty() {
            return Ok(Vec::new());
        }
        let query = self
            .query(&self.statements().window_open)
            .bind(serde_json::Value::Array(starts).to_string())
            .bind(i32::try_from(limit).unwrap_or(MAX_LISTED).min(MAX_LISTED))
            .bind(MAX_LISTED)
            .bind(watermarks.ids())
            .bind(watermarks.xids());
        self.rows(DOING, query).await
    }
}

/// Decodes the header of a new window: its snapshot, its ids if they are all listed, and the id that they are above.
fn opening(header: &PgRow) -> sqlx::Result<(&str, Option<Vec<RowId>>, RowId)> {
    let ids: Vec<RowId> = header.try_get("ids")?;
    let is_complete: bool = header.try_get("is_all")?;
    Ok((header.try_get("s2")?, is_complete.then_some(ids), header.try_get("above")?))
}
