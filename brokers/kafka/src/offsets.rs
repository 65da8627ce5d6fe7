//! How far one partition was finished: everything before the first offset that was delivered and is not.

use std::collections::VecDeque;

/// One partition, from the moment it was assigned until it goes to somebody else.
#[derive(Debug)]
pub(crate) struct Offsets {
    /// Tells this assignment of the partition from those before and after it.
    pub(crate) assignment: u64,
    /// What was delivered and is at or behind the first unfinished one, in order, with whether it is finished.
    delivered: VecDeque<(i64, bool)>,
    /// Behind the last that was delivered; `None` before the first.
    next: Option<i64>,
    /// What the finished prefix was when somebody last asked.
    told: Option<i64>,
    /// Whether nothing more is fetched until more of the prefix is finished.
    pub(crate) is_held: bool,
}

impl Offsets {
    pub(crate) fn new(assignment: u64) -> Self {
        Self { assignment, delivered: VecDeque::new(), next: None, told: None, is_held: false }
    }

    /// Whether `offset` can follow what was delivered. If not, the partition was cut, and begins anew.
    pub(crate) fn follows(&self, offset: i64) -> bool {
        self.next.is_none_or(|next| offset >= next)
    }

    pub(crate) fn deliver(&mut self, offset: i64) {
        self.delivered.push_back((offset, false));
        self.next = Some(offset + 1);
    }

    /// Whether nothing was delivered yet.
    pub(crate) fn is_untouched(&self) -> bool {
        self.next.is_none()
    }

    /// `false` if it was finished before.
    pub(crate) fn finish(&mut self, offset: i64) -> bool {
        let Some(place) = self.place(offset) else { return false };
        let was_finished = std::mem::replace(&mut self.delivered[place].1, true);
        while self.delivered.front().is_some_and(|(_, finished)| *finished) {
            self.delivered.pop_front();
        }
        !was_finished
    }

    fn place(&self, offset: i64) -> Option<usize> {
        let first = self.delivered.front()?.0;
        // There it is, unless offsets have holes.
        let guess = usize::try_from(offset.checked_sub(first)?).ok()?;
        if self.delivered.get(guess).is_some_and(|(delivered, _)| *delivered == offset) {
            return Some(guess);
        }
        self.delivered.binary_search_by_key(&offset, |(delivered, _)| *delivered).ok()
    }

    /// How many were delivered since the first that is unfinished: what is kept in memory, and what comes again if this
    /// member dies.
    pub(crate) fn length(&self) -> usize {
        self.delivered.len()
    }

    pub(crate) fn unfinished(&self) -> usize {
        self.delivered.iter().filter(|(_, finished)| !finished).count()
    }

    /// Where the next member would go on, if that has changed.
    pub(crate) fn progress(&mut self) -> Option<i64> {
        let finished = self.delivered.front().map(|(offset, _)| *offset).or(self.next)?;
        // Nothing is finished before something is: the first delivered is where the group stood anyway.
        (self.told.replace(finished) != Some(finished)).then_some(finished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_finished_prefix_counts() {
        let mut offsets = Offsets::new(1);
        assert_eq!(offsets.progress(), None);
        // Offsets may have holes, where a transaction ended.
        for offset in [10, 11, 13, 14] {
            offsets.deliver(offset);
        }
        assert_eq!((offsets.progress(), offsets.unfinished()), (Some(10), 4));
        assert!(offsets.finish(13) && offsets.finish(11));
        assert_eq!((offsets.progress(), offsets.unfinished()), (None, 2));
        assert!(offsets.finish(10));
        assert_eq!(offsets.progress(), Some(14));
        assert!(offsets.finish(14));
        assert_eq!((offsets.progress(), offsets.unfinished()), (Some(15), 0));
        assert!(!offsets.finish(14), "it was finished before");
    }

    #[test]
    fn an_offset_that_goes_back_is_noticed() {
        let mut offsets = Offsets::new(1);
        offsets.deliver(5);
        assert!(offsets.follows(6) && offsets.follows(9) && !offsets.follows(5));
    }
}
