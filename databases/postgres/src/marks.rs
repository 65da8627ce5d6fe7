//! How far back a relay has to look for rows that have appeared.
//!
//! A row that appears may have an id below those that were read long ago: its transaction took it and committed late. But
//! a transaction draws its number before its ids, and ids only grow, so one that began after a [`Mark`] was made has ids
//! above it. A relay makes one every so often and keeps a few, the closer together the younger they are: of a transaction
//! that ends, the last mark before its number says where its rows begin, and not much before.

use landfall_core::RowId;

/// Ids between two marks.
const APART: RowId = 256;

/// Whoever got his transaction number after `xid` takes ids above `id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) id: RowId,
    pub(crate) xid: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// In order of both.
    kept: Vec<Mark>,
    /// How far ids had come at the last look.
    top: RowId,
}

impl Marks {
    /// Whether another is due. One that is made right before a look serves the next one.
    pub(crate) fn is_time(&self) -> bool {
        self.kept.last().is_none_or(|last| self.top - last.id >= APART)
    }

    /// Ids have come to `top`. False if they were higher once: somebody set them back, and no mark holds any more.
    pub(crate) fn reach(&mut self, top: RowId) -> bool {
        let holds = self.kept.last().is_none_or(|last| last.id <= top);
        if !holds {
            self.kept.clear();
        }
        self.top = top;
        holds
    }

    pub(crate) fn push(&mut self, mark: Mark) {
        let mut kept: Vec<Mark> = Vec::with_capacity(self.kept.len() + 1);
        for (at, old) in self.kept.iter().enumerate() {
            let after = self.kept.get(at + 1).unwrap_or(&mark);
            // One is left out if those beside it are closer to each other than to the youngest.
            if kept.last().is_none_or(|before| after.id - before.id > mark.id - after.id) {
                kept.push(*old);
            }
        }
        kept.push(mark);
        self.kept = kept;
    }

    pub(crate) fn ids(&self) -> Vec<RowId> {
        self.kept.iter().map(|mark| mark.id).collect()
    }

    pub(crate) fn xids(&self) -> Vec<String> {
        self.kept.iter().map(|mark| mark.xid.to_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_marks_reach_far_back_and_the_next_one_is_never_much_older() {
        let mut marks = Marks::default();
        for step in 1..=100_000 {
            marks.push(Mark { id: step * APART, xid: step as u64 });
        }
        assert!(marks.kept.len() < 64, "{}", marks.kept.len());
        assert_eq!(marks.kept[0].id, APART, "the first stays");
        let youngest = marks.kept.last().unwrap().id;
        for pair in marks.kept.windows(2) {
            let age = youngest - pair[0].id;
            assert!(pair[1].id - pair[0].id <= age.max(APART), "{pair:?}");
        }
    }

    #[test]
    fn marks_are_due_every_so_many_ids_and_worthless_when_ids_go_back() {
        let mut marks = Marks::default();
        assert!(marks.is_time() && marks.reach(1_000));
        marks.push(Mark { id: 1_000, xid: 7 });
        assert!(marks.reach(1_000 + APART - 1) && !marks.is_time());
        assert!(marks.reach(1_000 + APART) && marks.is_time());
        assert!(!marks.reach(999) && marks.is_time() && marks.ids().is_empty());
    }
}
