//! Opening windows: what is visible now and was not visible the last time.

use std::collections::{BTreeSet, VecDeque};

use landfall_core::{OutboxEntry, Result, RowId};
use serde_json::json;
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::cursor::{Cursor, Group, Window};
use crate::marks::{Mark, Marks};
use crate::outbox_read::Found;
use crate::snapshot::Snapshot;
use crate::{Postgres, row};

/// A window of up to so many rows is known by its ids; a larger one is walked along the index of ids.
const IDS_MOST: i32 = 10_000;

impl Postgres {
    /// Opens a window for every group that has none, all at one moment: those that finish it stand at the same place.
    pub(crate) async fn open_windows(&self, cursor: &mut Cursor, limit: usize) -> Result<Found> {
        let doing = "read the outbox";
        if cursor.marks.is_time() {
            self.mark(&mut cursor.marks).await?;
        }
        let at_rest = cursor.groups.iter().enumerate().filter(|(_, group)| group.window.is_none());
        let rows = self.look(&cursor.marks, at_rest.map(|(at, group)| (at, &group.shards, &group.s1)), limit).await?;
        let mut found = Found::default();
        // The first row is never a message, and there is none if there was nothing to ask.
        let Some(first) = rows.first() else { return Ok(found) };
        let top: RowId = first.try_get(17).map_err(self.could_not(doing))?;
        if !cursor.marks.reach(top) {
            return Ok(found);
        }
        for row in &rows {
            let at: i32 = row.try_get(18).map_err(self.could_not(doing))?;
            let Some(group) = cursor.groups.get_mut(at as usize) else { continue };
            if let Some(s2) = row.try_get::<Option<&str>, _>(13).map_err(self.could_not(doing))? {
                let ids: Vec<RowId> = row.try_get(14).map_err(self.could_not(doing))?;
                let is_all: bool = row.try_get(15).map_err(self.could_not(doing))?;
                found.troubled |= row.try_get::<bool, _>(12).map_err(self.could_not(doing))?;
                self.is_alive(row, cursor.life)?;
                let above: RowId = row.try_get(16).map_err(self.could_not(doing))?;
                group.open(Snapshot::parse(s2)?, ids, is_all, above);
            } else {
                let (entry, blocked) = row::entry(row).map_err(self.could_not(doing))?;
                if group.knows(entry.row) {
                    found.rows.push((entry, blocked));
                }
            }
        }
        cursor.merge();
        Ok(found)
    }

    /// Nobody looks further back than here for what is written by transactions that begin later.
    async fn mark(&self, marks: &mut Marks) -> Result<()> {
        let doing = "remember how far ids and transactions have come";
        let mut session = self.session().await?;
        let mark = self.query(&self.statements().mark).fetch_one(session.connection()).await;
        let mark = mark.map_err(self.could_not(doing))?;
        let id = mark.try_get(0).map_err(self.could_not(doing))?;
        let xid: Option<&str> = mark.try_get(1).map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        if let Some(xid) = xid.and_then(|xid| xid.parse().ok()) {
            marks.push(Mark { id, xid });
        }
        Ok(())
    }

    /// Beyond what is left of windows that were read to their end: what has appeared since. A message that stays unsettled
    /// holds up its own key, not everybody's next window.
    ///
    /// Only of groups whose whole rest is in `batch`: what another group has left must go out before what is newer.
    pub(crate) async fn look_ahead(
        &self,
        cursor: &Cursor,
        batch: &[OutboxEntry],
        limit: usize,
    ) -> Result<Vec<OutboxEntry>> {
        let doing = "read the outbox";
        let in_batch: BTreeSet<RowId> = batch.iter().map(|entry| entry.row).collect();
        let ends = cursor.groups.iter().enumerate().filter_map(|(at, group)| {
            let window = group.window.as_ref().filter(|window| window.scanned_to == RowId::MAX)?;
            let goes_out = |id: &RowId| group.done.contains(id) || in_batch.contains(id);
            window.ids.iter().all(goes_out).then_some((at, &group.shards, &window.s2))
        });
        let mut ahead = Vec::new();
        for row in &self.look(&cursor.marks, ends, limit).await? {
            if row.try_get::<Option<RowId>, _>(0).map_err(self.could_not(doing))?.is_none() {
                continue;
            }
            let (entry, blocked) = row::entry(row).map_err(self.could_not(doing))?;
            let is_done = cursor.groups.iter().any(|group| group.done.contains(&entry.row));
            if !blocked && !is_done {
                ahead.push(entry);
            }
        }
        ahead.truncate(limit);
        Ok(ahead)
    }

    /// What is visible now and was not visible in the snapshots of these groups, all at one moment.
    async fn look<'a>(
        &self,
        marks: &Marks,
        groups: impl Iterator<Item = (usize, &'a Vec<i16>, &'a Snapshot)>,
        limit: usize,
    ) -> Result<Vec<PgRow>> {
        let given: Vec<_> =
            groups.map(|(at, shards, s1)| json!({ "at": at, "shards": shards, "s1": s1.as_str() })).collect();
        if given.is_empty() {
            return Ok(Vec::new());
        }
        let doing = "read the outbox";
        let mut session = self.session().await?;
        let rows = self
            .query(&self.statements().next)
            .bind(serde_json::Value::Array(given).to_string())
            .bind(i32::try_from(limit).unwrap_or(IDS_MOST).min(IDS_MOST))
            .bind(IDS_MOST)
            .bind(marks.ids())
            .bind(marks.xids())
            .fetch_all(session.connection())
            .await
            .map_err(self.could_not(doing))?;
        session.finish().await.map_err(self.could_not(doing))?;
        Ok(rows)
    }
}

impl Group {
    /// `above` is an id that all rows of the window are above.
    fn open(&mut self, s2: Snapshot, ids: Vec<RowId>, is_all: bool, above: RowId) {
        self.window = Some(if is_all {
            // What was settled by itself is in the window, or it is gone.
            self.done = self.done.iter().filter(|id| ids.binary_search(id).is_ok()).copied().collect();
            let last_id = ids.first().map_or(RowId::MIN, |id| id - 1);
            Window { s2, last_id, ids: ids.into(), scanned_to: RowId::MAX }
        } else {
            Window { s2, last_id: above, ids: VecDeque::new(), scanned_to: above }
        });
        if is_all {
            self.advance();
        }
    }
}
