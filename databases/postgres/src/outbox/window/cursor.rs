//! The relay's position in the outbox: the progress table's rows of its shards, kept in memory between two settlements.
//!
//! The table is authoritative. Every settlement checks that no other relay has moved the shards on; a cursor that is
//! behind is reset and loaded again.

use std::collections::HashSet;

use landfall_core::adapter::{Epoch, Lease, Shard};
use landfall_core::{Result, RowId};
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::SnapshotWindow;
use super::prefetch::Prefetch;
use super::probe::Quiet;
use super::watermark::Watermarks;

#[derive(Debug, Default)]
pub(crate) struct Cursor {
    /// The leases that the cursor was loaded for.
    pub(crate) leases: Vec<ShardLease>,
    pub(crate) windows: Vec<SnapshotWindow>,
    /// The server's incarnation that the cursor was loaded in. A crash changes it.
    pub(crate) incarnation: Uuid,
    /// Number of batches read, so that windows take turns.
    pub(crate) batches: usize,
    /// Rows of the last batch that came from the waiting table.
    pub(crate) waiting: HashSet<RowId>,
    /// Rows of the last batch whose settlement must survive a crash: they must not be published twice.
    pub(crate) unrepeatable: HashSet<RowId>,
    pub(crate) prefetch: Prefetch,
    pub(crate) watermarks: Watermarks,
    /// Set while the last read found nothing.
    pub(crate) quiet: Option<Quiet>,
    /// The highest row id drawn by the probe before the next read.
    pub(crate) probed_top: Option<RowId>,
}

/// The lease of a shard.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ShardLease {
    pub(crate) shard: i16,
    pub(crate) epoch: Epoch,
    pub(crate) holder: String,
}

impl ShardLease {
    /// Returns those of `leases` that are for shards, sorted and each once.
    pub(crate) fn from_leases(leases: &[Lease]) -> Vec<Self> {
        let mut found: Vec<_> = leases
            .iter()
            .filter_map(|lease| {
                let shard = Shard::from_lease(&lease.name).and_then(|shard| i16::try_from(shard.0).ok())?;
                Some(Self { shard, epoch: lease.epoch, holder: lease.holder.0.clone() })
            })
            .collect();
        found.sort();
        found.dedup();
        found
    }

    pub(crate) fn name(&self) -> String {
        Shard(self.shard as u16).lease_name().0
    }
}

impl Cursor {
    /// Replaces what the cursor knows by the rows of the statement `progress`.
    pub(crate) fn load(&mut self, leases: Vec<ShardLease>, incarnation: Uuid, progress: &[PgRow]) -> Result<()> {
        self.reset();
        self.incarnation = incarnation;
        self.windows = progress.iter().map(SnapshotWindow::from_progress).collect::<Result<_>>()?;
        self.merge();
        self.leases = leases;
        Ok(())
    }

    /// Forgets everything but whose turn it is; the next call loads the cursor again.
    pub(crate) fn reset(&mut self) {
        *self = Self { batches: self.batches, ..Self::default() };
    }

    pub(crate) fn shards(&self) -> Vec<i16> {
        self.leases.iter().map(|lease| lease.shard).collect()
    }

    /// Merges windows whose shards have made equal progress.
    pub(crate) fn merge(&mut self) {
        let mut merged: Vec<SnapshotWindow> = Vec::with_capacity(self.windows.len());
        for window in self.windows.drain(..) {
            match merged.iter_mut().find(|other| other.is_even_with(&window)) {
                Some(other) => {
                    other.shards.extend(window.shards);
                    other.shards.sort_unstable();
                    other.progress_id = other.progress_id.max(window.progress_id);
                }
                None => merged.push(window),
            }
        }
        self.windows = merged;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::closed;
    use super::*;

    #[test]
    fn windows_with_equal_progress_are_merged() {
        let windows = [(0, "5:5:"), (1, "7:7:"), (2, "5:5:")].map(|(shard, lower)| closed(shard, lower)).into();
        let mut cursor = Cursor { windows, ..Cursor::default() };
        cursor.merge();
        let shards: Vec<_> = cursor.windows.iter().map(|window| window.shards.clone()).collect();
        assert_eq!(shards, [vec![0, 2], vec![1]]);
    }
}
