//! Where a relay is in the outbox: what the progress table says, kept in memory between two settlements.
//!
//! A window is everything that is visible in snapshot `s2` and was not visible in `s1`. Windows follow each other
//! without gap or overlap, whatever order ids were given out in and transactions committed in, so a row that commits
//! late is simply in a later window. Inside a window rows go out in order of id.
//!
//! Nothing here is the truth: every settlement checks that the table has not moved on, and a cursor that is behind is
//! thrown away and loaded again.

use std::collections::{BTreeSet, HashSet, VecDeque};

use landfall_core::{Epoch, Lease, RowId, Shard};
use serde_json::json;
use uuid::Uuid;

use crate::marks::Marks;
use crate::read_ahead::ReadAhead;
use crate::snapshot::Snapshot;

#[derive(Debug, Default)]
pub(crate) struct Cursor {
    /// The leases it was loaded for.
    pub(crate) held: Vec<Held>,
    pub(crate) groups: Vec<Group>,
    /// The server's life in which it was loaded: after a crash it is another.
    pub(crate) life: Uuid,
    /// Counts the batches, so that groups take turns.
    pub(crate) turn: usize,
    /// Waiting messages that were handed out last.
    pub(crate) waiting: HashSet<RowId>,
    /// Of what was handed out last, that which must not be sent twice.
    pub(crate) fragile: HashSet<RowId>,
    pub(crate) ahead: ReadAhead,
    pub(crate) marks: Marks,
}

/// A shard under the epoch of its lease.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Held {
    pub(crate) shard: i16,
    pub(crate) epoch: Epoch,
    pub(crate) holder: String,
}

impl Held {
    pub(crate) fn of(leases: &[Lease]) -> Vec<Held> {
        let mut held: Vec<_> = leases
            .iter()
            .filter_map(|lease| {
                let shard = Shard::from_lease(&lease.name).and_then(|shard| i16::try_from(shard.0).ok())?;
                Some(Held { shard, epoch: lease.epoch, holder: lease.holder.0.clone() })
            })
            .collect();
        held.sort();
        held.dedup();
        held
    }

    pub(crate) fn lease_name(&self) -> String {
        Shard(self.shard as u16).lease_name().0
    }
}

impl Cursor {
    pub(crate) fn forget(&mut self) {
        *self = Self { turn: self.turn, ..Self::default() };
    }

    pub(crate) fn shards(&self) -> Vec<i16> {
        self.held.iter().map(|held| held.shard).collect()
    }

    /// Groups that have come equally far become one.
    pub(crate) fn merge(&mut self) {
        let mut merged: Vec<Group> = Vec::with_capacity(self.groups.len());
        for group in self.groups.drain(..) {
            let at_rest = group.window.is_none() && group.done.is_empty();
            let like = merged
                .iter_mut()
                .find(|other| at_rest && other.window.is_none() && other.done.is_empty() && other.s1 == group.s1);
            match like {
                Some(other) => {
                    other.shards.extend(group.shards);
                    other.shards.sort_unstable();
                    other.n = other.n.max(group.n);
                }
                None => merged.push(group),
            }
        }
        self.groups = merged;
    }
}

/// Shards at the same place.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) shards: Vec<i16>,
    /// The latest row of the progress table that is about any of them.
    pub(crate) n: i64,
    pub(crate) s1: Snapshot,
    pub(crate) window: Option<Window>,
    /// Settled rows that are not covered by `s1`, nor by the window's `last_id`.
    pub(crate) done: BTreeSet<RowId>,
}

#[derive(Debug, Clone)]
pub(crate) struct Window {
    pub(crate) s2: Snapshot,
    /// Everything of the window up to here is settled.
    pub(crate) last_id: RowId,
    /// Rows of the window above `last_id`, in order: all of them up to `scanned_to`.
    pub(crate) ids: VecDeque<RowId>,
    pub(crate) scanned_to: RowId,
}

impl Group {
    /// Whether a row that `xid` wrote is settled.
    pub(crate) fn has_settled(&self, id: RowId, xid: u64) -> bool {
        let in_window = |window: &Window| id <= window.last_id && window.s2.shows(xid);
        self.s1.shows(xid) || self.done.contains(&id) || self.window.as_ref().is_some_and(in_window)
    }

    /// What is known to be in the window and not settled, in order.
    pub(crate) fn unsettled(&self) -> impl Iterator<Item = RowId> {
        let ids = self.window.iter().flat_map(|window| &window.ids);
        ids.filter(|id| !self.done.contains(id)).copied()
    }

    /// Whether the row is known to be in the window and not settled.
    pub(crate) fn knows(&self, id: RowId) -> bool {
        let known = self.window.as_ref().is_some_and(|window| window.ids.binary_search(&id).is_ok());
        known && !self.done.contains(&id)
    }

    /// Remembers that a row is settled. Those at the front, as nearly all are, are passed at once.
    pub(crate) fn settle(&mut self, id: RowId) {
        match &mut self.window {
            Some(window) if window.ids.front() == Some(&id) => {
                window.last_id = id;
                window.ids.pop_front();
            }
            _ => drop(self.done.insert(id)),
        }
    }

    /// Moves on over what is settled at the front, and to the next window when this one is through.
    pub(crate) fn advance(&mut self) {
        let Some(window) = &mut self.window else { return };
        while let Some(id) = window.ids.front().copied() {
            if !self.done.remove(&id) {
                return;
            }
            window.last_id = id;
            window.ids.pop_front();
        }
        window.last_id = window.scanned_to;
        if window.scanned_to == RowId::MAX
            && let Some(window) = self.window.take()
        {
            self.s1 = window.s2;
        }
    }

    /// As a row of the progress table.
    pub(crate) fn to_json(&self, published: usize) -> serde_json::Value {
        json!({
            "shards": self.shards,
            "n": self.n,
            "s1": self.s1.as_str(),
            "s2": self.window.as_ref().map(|window| window.s2.as_str()),
            "last_id": self.window.as_ref().map(|window| window.last_id),
            "done": self.done,
            "published": published,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(ids: &[RowId], scanned_to: RowId) -> Group {
        let snapshot = |text| Snapshot::parse(text).unwrap();
        let window = Window { s2: snapshot("9:9:"), last_id: 0, ids: ids.iter().copied().collect(), scanned_to };
        Group { shards: vec![1], n: 1, s1: snapshot("5:5:"), window: Some(window), done: BTreeSet::new() }
    }

    #[test]
    fn what_is_settled_in_the_middle_is_remembered_until_the_front_has_caught_up() {
        let mut group = group(&[3, 5, 8], RowId::MAX);
        group.settle(5);
        group.advance();
        assert_eq!(group.window.as_ref().unwrap().last_id, 0);
        assert!(group.has_settled(5, 6) && !group.has_settled(3, 6) && !group.knows(5) && group.knows(8));
        group.settle(3);
        group.advance();
        assert_eq!((group.window.as_ref().unwrap().last_id, group.done.len()), (5, 0));
        group.settle(8);
        group.advance();
        assert!(group.window.is_none() && group.s1.as_str() == "9:9:");
    }

    #[test]
    fn a_window_that_was_not_read_to_its_end_stays_open() {
        let mut group = group(&[3], 100);
        group.settle(3);
        group.advance();
        assert_eq!(group.window.as_ref().unwrap().last_id, 100);
        assert!(group.has_settled(50, 6) && !group.has_settled(50, 9), "another transaction's row was not in it");
    }

    #[test]
    fn groups_at_one_place_become_one() {
        let mut cursor = Cursor::default();
        for (shard, s1) in [(0, "5:5:"), (1, "7:7:"), (2, "5:5:")] {
            let place = Group { shards: vec![shard], window: None, s1: Snapshot::parse(s1).unwrap(), ..group(&[], 0) };
            cursor.groups.push(place);
        }
        cursor.merge();
        assert_eq!(cursor.groups.iter().map(|group| group.shards.clone()).collect::<Vec<_>>(), [vec![0, 2], vec![1]]);
    }
}
