//! Where a group stands in one partition.

use std::collections::BTreeSet;

/// Who has the partition, and what of it is finished.
#[derive(Debug, Clone, Default)]
pub(crate) struct Place {
    pub(crate) owner: Option<u64>,
    /// Changes whenever the partition changes hands or is sought.
    pub(crate) generation: u64,
    /// The offset behind the last one that was delivered to anybody.
    delivered: u64,
    /// What is not finished below it: bounded by what was ever in flight at a time.
    unfinished: BTreeSet<u64>,
}

/// What is to be done with a message that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Deliver,
    /// Nothing: it was finished by somebody who had the partition before.
    Finished,
    /// Nothing: the partition is in another generation.
    Fenced,
}

impl Place {
    /// Nobody's, with everything below `offset` finished.
    pub(crate) fn at(offset: u64) -> Self {
        Self { delivered: offset, ..Self::default() }
    }

    /// Everything below is finished. This is what is saved.
    pub(crate) fn finished(&self) -> u64 {
        self.unfinished.first().copied().unwrap_or(self.delivered)
    }

    /// Goes to `offset`, in a new generation, whatever was finished.
    pub(crate) fn seek(&mut self, offset: u64, generation: u64) {
        *self = Self { owner: self.owner, generation, ..Self::at(offset) };
    }

    /// What was before `start` is no longer there.
    pub(crate) fn begin_at(&mut self, start: u64) {
        if start > self.finished() {
            self.unfinished = self.unfinished.split_off(&start);
            self.delivered = self.delivered.max(start);
        }
    }

    /// What stands at `offset` was read by whoever has the partition now, for the first time.
    pub(crate) fn deliver(&mut self, offset: u64) -> Turn {
        if offset < self.delivered {
            return if self.unfinished.contains(&offset) { Turn::Deliver } else { Turn::Finished };
        }
        self.unfinished.insert(offset);
        self.delivered = offset + 1;
        Turn::Deliver
    }

    /// What stands at `offset` is finished; whether there is more to save now.
    pub(crate) fn finish(&mut self, offset: u64) -> bool {
        let before = self.finished();
        self.unfinished.remove(&offset);
        self.delivered = self.delivered.max(offset + 1);
        self.finished() != before
    }
}
