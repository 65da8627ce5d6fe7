//! Reading the outbox in snapshot windows.
//!
//! A snapshot window holds the rows that are visible in its `upper` snapshot and not in its `lower` one. Consecutive
//! windows have neither gaps nor overlaps, in whatever order ids were drawn and transactions committed. A row that
//! commits late is in a later window. Inside a window, rows go out in order of id.
//!
//! * `cursor.rs`: the windows of all leased shards, in memory between two settlements.
//! * `open.rs`, `fetch.rs`, `prefetch.rs`: the statements that open a window, read its next rows, and read the rows
//!   after those in the background.
//! * `probe.rs`: whether an idle outbox has anything new.
//! * `snapshot.rs`: `pg_snapshot`. `watermark.rs`: how far back new rows can be.

mod cursor;
mod fetch;
mod open;
mod prefetch;
mod probe;
mod snapshot;
mod watermark;

use std::collections::{BTreeSet, VecDeque};

use landfall_core::{Result, RowId};
use serde_json::json;
use sqlx::Row;
use sqlx::postgres::PgRow;

pub(crate) use self::cursor::{Cursor, ShardLease};
pub(crate) use self::fetch::Fetched;
use self::snapshot::Snapshot;
use crate::row;

/// The window of shards that have made equal progress; between two windows, the snapshot the next one starts from.
#[derive(Debug, Clone)]
pub(crate) struct SnapshotWindow {
    pub(crate) shards: Vec<i16>,
    /// The newest row of the progress table that names any of the shards.
    pub(crate) progress_id: i64,
    /// Every row visible in this snapshot is settled.
    lower: Snapshot,
    /// `None` between two windows.
    open: Option<OpenWindow>,
    /// Settled rows that neither `lower` nor [`OpenWindow::settled_to`] covers.
    settled_ahead: BTreeSet<RowId>,
}

#[derive(Debug, Clone)]
struct OpenWindow {
    upper: Snapshot,
    /// Every row of the window up to this id is settled.
    settled_to: RowId,
    /// The rows of the window above `settled_to`, in order; complete up to `listed_to`.
    ids: VecDeque<RowId>,
    /// `RowId::MAX` once all rows of the window are listed.
    listed_to: RowId,
}

impl SnapshotWindow {
    /// Decodes a row of the statement `progress`.
    fn from_progress(row: &PgRow) -> Result<Self> {
        let upper: Option<&str> = row.try_get("s2").map_err(row::undecodable)?;
        let settled_to: Option<RowId> = row.try_get("last_id").map_err(row::undecodable)?;
        let open = match upper {
            Some(upper) => {
                let settled_to = settled_to.unwrap_or(RowId::MIN);
                let upper = Snapshot::parse(upper)?;
                Some(OpenWindow { upper, settled_to, ids: VecDeque::new(), listed_to: settled_to })
            }
            None => None,
        };
        let settled_ahead: Vec<RowId> = row.try_get("done").map_err(row::undecodable)?;
        Ok(Self {
            shards: row.try_get("shards").map_err(row::undecodable)?,
            progress_id: row.try_get("n").map_err(row::undecodable)?,
            lower: Snapshot::parse(row.try_get("s1").map_err(row::undecodable)?)?,
            open,
            settled_ahead: settled_ahead.into_iter().collect(),
        })
    }

    /// Opens the window up to the snapshot `upper`. All of its rows have ids above `above`; `ids` lists them if there
    /// are few enough, and is `None` otherwise.
    fn open(&mut self, upper: Snapshot, ids: Option<Vec<RowId>>, above: RowId) {
        let Some(ids) = ids else {
            self.open = Some(OpenWindow { upper, settled_to: above, ids: VecDeque::new(), listed_to: above });
            return;
        };
        // A row settled out of order is in this window, or it no longer exists.
        self.settled_ahead.retain(|id| ids.binary_search(id).is_ok());
        let settled_to = ids.first().map_or(RowId::MIN, |id| id - 1);
        self.open = Some(OpenWindow { upper, settled_to, ids: ids.into(), listed_to: RowId::MAX });
        self.advance();
    }

    /// Moves past the settled rows at the front, and closes the window once all of its rows are settled.
    pub(crate) fn advance(&mut self) {
        let Some(open) = &mut self.open else { return };
        while let Some(id) = open.ids.front().copied() {
            if !self.settled_ahead.remove(&id) {
                return;
            }
            open.settled_to = id;
            open.ids.pop_front();
        }
        open.settled_to = open.listed_to;
        if open.listed_to == RowId::MAX
            && let Some(open) = self.open.take()
        {
            self.lower = open.upper;
        }
    }

    /// Marks a row as settled. Nearly all are at the front, and are passed at once.
    pub(crate) fn settle(&mut self, id: RowId) {
        match &mut self.open {
            Some(open) if open.ids.front() == Some(&id) => {
                open.settled_to = id;
                open.ids.pop_front();
            }
            _ => drop(self.settled_ahead.insert(id)),
        }
    }

    /// Returns whether the row `id`, written by transaction `xid`, is settled.
    pub(crate) fn has_settled(&self, id: RowId, xid: u64) -> bool {
        let in_window = |open: &OpenWindow| id <= open.settled_to && open.upper.is_visible(xid);
        self.lower.is_visible(xid) || self.settled_ahead.contains(&id) || self.open.as_ref().is_some_and(in_window)
    }

    /// Returns whether the row is listed in the window and not settled.
    pub(crate) fn has_unsettled(&self, id: RowId) -> bool {
        let is_listed = self.open.as_ref().is_some_and(|open| open.ids.binary_search(&id).is_ok());
        is_listed && !self.settled_ahead.contains(&id)
    }

    /// Returns the listed rows that are not settled, in order.
    fn unsettled(&self) -> impl Iterator<Item = RowId> {
        let ids = self.open.iter().flat_map(|open| &open.ids);
        ids.filter(|id| !self.settled_ahead.contains(id)).copied()
    }

    /// Returns whether the next window of this one starts where the next window of `other` does.
    fn is_even_with(&self, other: &Self) -> bool {
        let is_closed = |window: &Self| window.open.is_none() && window.settled_ahead.is_empty();
        is_closed(self) && is_closed(other) && self.lower == other.lower
    }

    /// Returns the window as a row of the progress table, `published` more messages included.
    pub(crate) fn to_progress(&self, published: usize) -> serde_json::Value {
        json!({
            "shards": self.shards,
            "n": self.progress_id,
            "s1": self.lower.as_str(),
            "s2": self.open.as_ref().map(|open| open.upper.as_str()),
            "last_id": self.open.as_ref().map(|open| open.settled_to),
            "done": self.settled_ahead,
            "published": published,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn window(ids: &[RowId], listed_to: RowId) -> SnapshotWindow {
        let snapshot = |text| Snapshot::parse(text).unwrap();
        let ids = ids.iter().copied().collect();
        let open = OpenWindow { upper: snapshot("9:9:"), settled_to: 0, ids, listed_to };
        SnapshotWindow {
            shards: vec![1],
            progress_id: 1,
            lower: snapshot("5:5:"),
            open: Some(open),
            settled_ahead: BTreeSet::new(),
        }
    }

    pub(super) fn closed(shard: i16, lower: &str) -> SnapshotWindow {
        let lower = Snapshot::parse(lower).unwrap();
        SnapshotWindow { shards: vec![shard], lower, open: None, ..window(&[], 0) }
    }

    #[test]
    fn row_settled_out_of_order_is_kept_until_the_front_passes_it() {
        let mut window = window(&[3, 5, 8], RowId::MAX);
        window.settle(5);
        window.advance();
        assert_eq!(window.open.as_ref().unwrap().settled_to, 0);
        assert!(window.has_settled(5, 6) && !window.has_settled(3, 6));
        assert!(!window.has_unsettled(5) && window.has_unsettled(8));
        window.settle(3);
        window.advance();
        assert_eq!((window.open.as_ref().unwrap().settled_to, window.settled_ahead.len()), (5, 0));
        window.settle(8);
        window.advance();
        assert!(window.open.is_none() && window.lower.as_str() == "9:9:");
    }

    #[test]
    fn window_that_is_not_fully_listed_stays_open() {
        let mut window = window(&[3], 100);
        window.settle(3);
        window.advance();
        assert_eq!(window.open.as_ref().unwrap().settled_to, 100);
        assert!(
            window.has_settled(50, 6) && !window.has_settled(50, 9),
            "row 50 of transaction 9 is in a later \
             window"
        );
    }

    #[test]
    fn opening_forgets_rows_settled_ahead_that_no_longer_exist() {
        let mut window = closed(1, "5:5:");
        window.settled_ahead = BTreeSet::from([4, 7]);
        window.open(Snapshot::parse("9:9:").unwrap(), Some(vec![4, 6]), 0);
        assert_eq!((window.unsettled().collect::<Vec<_>>(), window.settled_ahead.len()), (vec![6], 0));
    }
}
