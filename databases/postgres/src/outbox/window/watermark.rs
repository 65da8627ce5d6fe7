//! Lower bounds for the ids of rows that have become visible.
//!
//! A row can become visible with an id below rows read long ago: its transaction drew the id early and committed late.
//! But a transaction gets its transaction id before it draws row ids, and row ids only grow. So a transaction that
//! started after a [`Watermark`] was taken has row ids above it.
//!
//! The relay takes a watermark every [`SPACING`] ids and keeps a few, more closely spaced the younger they are. For a
//! transaction that ends, the last watermark before its transaction id bounds its rows from below, and closely.

use landfall_core::RowId;

/// Row ids between two watermarks.
const SPACING: RowId = 256;

/// Transactions with ids above `xid` draw row ids above `id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Watermark {
    pub(crate) id: RowId,
    pub(crate) xid: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Watermarks {
    /// Ascending in both fields.
    kept: Vec<Watermark>,
    /// The highest row id at the last read.
    top: RowId,
}

impl Watermarks {
    /// Returns whether another watermark is due. One taken right before a read serves the read after it.
    pub(crate) fn is_due(&self) -> bool {
        self.kept.last().is_none_or(|last| self.top - last.id >= SPACING)
    }

    /// Records that row ids have reached `top`. Returns false, and drops all watermarks, if they were higher before:
    /// the sequence was set back, and no watermark is valid any more.
    pub(crate) fn reach(&mut self, top: RowId) -> bool {
        let is_valid = self.kept.last().is_none_or(|last| last.id <= top);
        if !is_valid {
            self.kept.clear();
        }
        self.top = top;
        is_valid
    }

    pub(crate) fn push(&mut self, watermark: Watermark) {
        let mut kept: Vec<Watermark> = Vec::with_capacity(self.kept.len() + 1);
        for (at, old) in self.kept.iter().enumerate() {
            let after = self.kept.get(at + 1).unwrap_or(&watermark);
            // Dropped if its neighbours are closer to each other than to the youngest.
            if kept.last().is_none_or(|before| after.id - before.id > watermark.id - after.id) {
                kept.push(*old);
            }
        }
        kept.push(watermark);
        self.kept = kept;
    }

    pub(crate) fn ids(&self) -> Vec<RowId> {
        self.kept.iter().map(|watermark| watermark.id).collect()
    }

    pub(crate) fn xids(&self) -> Vec<String> {
        self.kept.iter().map(|watermark| watermark.xid.to_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_watermarks_cover_the_past_with_growing_gaps() {
        let mut watermarks = Watermarks::default();
        for step in 1..=100_000 {
            watermarks.push(Watermark { id: step * SPACING, xid: step as u64 });
        }
        assert!(watermarks.kept.len() < 64, "{}", watermarks.kept.len());
        assert_eq!(watermarks.kept[0].id, SPACING, "the first one is kept");
        let youngest = watermarks.kept.last().unwrap().id;
        for pair in watermarks.kept.windows(2) {
            let age = youngest - pair[0].id;
            assert!(pair[1].id - pair[0].id <= age.max(SPACING), "{pair:?}");
        }
    }

    #[test]
    fn watermarks_are_spaced_and_dropped_when_ids_go_back() {
        let mut watermarks = Watermarks::default();
        assert!(watermarks.is_due() && watermarks.reach(1_000));
        watermarks.push(Watermark { id: 1_000, xid: 7 });
        assert!(watermarks.reach(1_000 + SPACING - 1) && !watermarks.is_due());
        assert!(watermarks.reach(1_000 + SPACING) && watermarks.is_due());
        assert!(!watermarks.reach(999) && watermarks.is_due() && watermarks.ids().is_empty());
    }
}
