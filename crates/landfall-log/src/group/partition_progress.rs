//! The progress of a group in one partition.

use std::collections::BTreeSet;

/// The owner of a partition, and its finished offsets.
#[derive(Debug, Clone, Default)]
pub(crate) struct PartitionProgress {
    pub(crate) owner: Option<u64>,
    /// Changes whenever the partition changes owner or is sought.
    pub(crate) generation: u64,
    /// The offset after the last one that was delivered to any member.
    delivered: u64,
    /// Unfinished offsets below it: bounded by the maximum ever in flight.
    unfinished: BTreeSet<u64>,
}

/// What to do with a message that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeliveryDecision {
    Deliver,
    /// Skip: a previous owner of the partition finished it.
    Finished,
    /// Skip: the partition is in another generation.
    Fenced,
}

impl PartitionProgress {
    /// Progress without an owner; everything below `offset` is finished.
    pub(crate) fn from_offset(offset: u64) -> Self {
        Self { delivered: offset, ..Self::default() }
    }

    /// Everything below is finished. This is the saved offset.
    pub(crate) fn finished(&self) -> u64 {
        self.unfinished.first().copied().unwrap_or(self.delivered)
    }

    /// Moves to `offset`, in a new generation, discarding what was finished.
    pub(crate) fn seek(&mut self, offset: u64, generation: u64) {
        *self = Self { owner: self.owner, generation, ..Self::from_offset(offset) };
    }

    /// Retention removed everything before `start`.
    pub(crate) fn truncate_before(&mut self, start: u64) {
        if start > self.finished() {
            self.unfinished = self.unfinished.split_off(&start);
            self.delivered = self.delivered.max(start);
        }
    }

    /// Records the first delivery of the message at `offset` to the current owner.
    pub(crate) fn deliver(&mut self, offset: u64) -> DeliveryDecision {
        if offset < self.delivered {
            return if self.unfinished.contains(&offset) {
                DeliveryDecision::Deliver
            } else {
                DeliveryDecision::Finished
            };
        }
        self.unfinished.insert(offset);
        self.delivered = offset + 1;
        DeliveryDecision::Deliver
    }

    /// Records that the message at `offset` is finished; returns whether the saved offset changes.
    pub(crate) fn finish(&mut self, offset: u64) -> bool {
        let before = self.finished();
        self.unfinished.remove(&offset);
        self.delivered = self.delivered.max(offset + 1);
        self.finished() != before
    }
}
