//! Idempotent producers: their registration, their state per partition, and their early batches.
//!
//! ```text
//! name ─▶ registry: id and epoch, durable                 one file for the log
//! id, epoch, sequence ─▶ producers: next, duplicate…      per partition, saved in the index of each finished segment
//!                          └─▶ reorder: early batches     per partition, in memory
//! ```
//!
//! A producer numbers its messages from 0, separately for each partition. The numbers continue when it registers again
//! after a restart; only the epoch is new.

mod registry;
mod reorder;

pub(crate) use registry::Registry;
pub(crate) use reorder::{Limits, ReorderBuffer, Ticket};

use std::collections::HashMap;

/// Identifies a producer; the log assigns it once per name. Never all ones, which means no producer.
pub(crate) type ProducerId = u64;

/// Increases each time a producer registers; an older epoch is fenced.
pub(crate) type Epoch = u16;

/// The state of a producer in one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProducerState {
    pub(crate) producer: ProducerId,
    /// The newest epoch that wrote.
    pub(crate) epoch: Epoch,
    pub(crate) next_sequence: u64,
}

/// What to do with messages of a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SequenceCheck {
    /// They come next: store them.
    Next,
    /// All of them are already stored.
    Duplicate,
    /// The first ones are already stored; the others come next.
    PartialDuplicate { duplicates: u64 },
    /// Predecessors are missing.
    Gap { expected: u64 },
    /// The producer has a newer epoch.
    Fenced { current: Epoch },
}

/// The state of each producer in one partition.
///
/// It learns of a new epoch only when a message is written with it. The [`Registry`] decides whether an epoch is the
/// newest.
#[derive(Debug, Clone, Default)]
pub(crate) struct Producers {
    states: HashMap<ProducerId, (Epoch, u64)>,
}

impl Producers {
    /// Restores what [`snapshot`](Self::snapshot) returned.
    pub(crate) fn from_snapshot(states: &[ProducerState]) -> Self {
        let states = states.iter().map(|state| (state.producer, (state.epoch, state.next_sequence)));
        Self { states: states.collect() }
    }

    /// Returns all states, sorted by producer.
    pub(crate) fn snapshot(&self) -> Vec<ProducerState> {
        let state = |(&producer, &(epoch, next_sequence))| ProducerState { producer, epoch, next_sequence };
        let mut states: Vec<_> = self.states.iter().map(state).collect();
        states.sort_unstable_by_key(|state| state.producer);
        states
    }

    /// Returns the sequence of the producer's next message.
    pub(crate) fn next_sequence(&self, producer: ProducerId) -> u64 {
        self.states.get(&producer).map_or(0, |(_, next)| *next)
    }

    /// Checks `count` messages from `first_sequence` on. Changes nothing.
    pub(crate) fn check(&self, producer: ProducerId, epoch: Epoch, first_sequence: u64, count: u64) -> SequenceCheck {
        let (current, next) = self.states.get(&producer).copied().unwrap_or_default();
        if epoch < current {
            return SequenceCheck::Fenced { current };
        }
        if first_sequence > next {
            return SequenceCheck::Gap { expected: next };
        }
        // Sequences count regardless of the epoch that stored them: a producer that registered again resends the
        // messages whose outcome it does not know.
        match next - first_sequence {
            duplicates if duplicates >= count => SequenceCheck::Duplicate,
            0 => SequenceCheck::Next,
            duplicates => SequenceCheck::PartialDuplicate { duplicates },
        }
    }

    /// Records that `count` messages from `first_sequence` on are stored, now or when the log was opened.
    pub(crate) fn record(&mut self, producer: ProducerId, epoch: Epoch, first_sequence: u64, count: u64) {
        let (current, next) = self.states.entry(producer).or_default();
        *current = epoch.max(*current);
        *next = first_sequence.saturating_add(count).max(*next);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares with a model that remembers every stored sequence, across restarts.
        #[test]
        fn each_message_is_stored_once_and_in_order(
            sent in proptest::collection::vec((0..3_u64, 0..3_u16, 0..12_u64, 0..5_u64, any::<bool>()), 1..80),
        ) {
            let mut producers = Producers::default();
            let mut stored: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
            let mut epochs: BTreeMap<u64, u16> = BTreeMap::new();
            for (producer, epoch, first, count, restarts) in sent {
                let known = stored.entry(producer).or_default();
                let next = known.len() as u64;
                let current = epochs.get(&producer).copied().unwrap_or_default();
                let fresh: Vec<_> = (first..first + count).filter(|sequence| !known.contains(sequence)).collect();
                let check = producers.check(producer, epoch, first, count);
                let expected = if epoch < current {
                    SequenceCheck::Fenced { current }
                } else if first > next {
                    SequenceCheck::Gap { expected: next }
                } else if fresh.is_empty() {
                    SequenceCheck::Duplicate
                } else if fresh.len() as u64 == count {
                    SequenceCheck::Next
                } else {
                    SequenceCheck::PartialDuplicate { duplicates: count - fresh.len() as u64 }
                };
                prop_assert_eq!(check, expected);
                if let SequenceCheck::Next | SequenceCheck::PartialDuplicate { .. } = check {
                    producers.record(producer, epoch, fresh[0], fresh.len() as u64);
                    known.extend(fresh);
                    epochs.insert(producer, epoch);
                    prop_assert_eq!(producers.next_sequence(producer), known.len() as u64);
                }
                if restarts {
                    producers = Producers::from_snapshot(&producers.snapshot());
                }
            }
            prop_assert!(producers.snapshot().is_sorted_by_key(|state| state.producer));
        }
    }

    #[test]
    fn highest_sequences_do_not_overflow() {
        let mut producers = Producers::default();
        producers.record(1, 0, 0, u64::MAX - 1);
        assert_eq!(producers.check(1, 0, u64::MAX - 1, u64::MAX), SequenceCheck::Next);
        assert_eq!(producers.check(1, 0, 0, u64::MAX), SequenceCheck::PartialDuplicate { duplicates: u64::MAX - 1 });
        producers.record(1, 0, u64::MAX - 1, u64::MAX);
        assert_eq!(producers.check(1, 0, 0, u64::MAX), SequenceCheck::Duplicate);
    }
}
