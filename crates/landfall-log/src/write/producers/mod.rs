//! Idempotent producers: who they are, how far each has come, and what came too early.
//!
//! ```text
//! name ─▶ registry: id and epoch, durable           one file for the log
//! id, epoch, sequence ─▶ producers: next, repeat…   per partition, saved in the index of each finished segment
//!                          └─▶ held: a gap waits    per partition, in memory
//! ```
//!
//! A producer counts its messages, from 0, separately for each partition. The count goes on when the producer registers
//! again after a restart; only the epoch is new.

mod held;
mod registry;

pub(crate) use held::{Held, Limits, Ticket};
pub(crate) use registry::Registry;

use std::collections::HashMap;

/// Who wrote a message: given out by the log, once, for a name. Never all ones, which means nobody.
pub(crate) type ProducerId = u64;

/// Grows each time a producer registers; whoever comes with an older one has been replaced.
pub(crate) type Epoch = u16;

/// How far a producer has come in one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProducerState {
    pub(crate) producer: ProducerId,
    /// The newest that wrote.
    pub(crate) epoch: Epoch,
    pub(crate) next_sequence: u64,
}

/// What is to be done with messages of a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// They come next: store them.
    Next,
    /// All of them are stored already.
    Repeat,
    /// So many at the beginning are stored already; the others come next.
    Partly { repeated: u64 },
    /// Something before them has not come yet.
    Gap { expected: u64 },
    /// The producer has a newer epoch.
    Fenced { current: Epoch },
}

/// How far each producer has come in one partition.
///
/// It knows a new epoch only once something was written with it. Whether an epoch is the newest that was given out
/// is the [`Registry`]'s to say.
#[derive(Debug, Clone, Default)]
pub(crate) struct Producers {
    states: HashMap<ProducerId, (Epoch, u64)>,
}

impl Producers {
    /// What [`snapshot`](Self::snapshot) returned.
    pub(crate) fn from_snapshot(states: &[ProducerState]) -> Self {
        let states = states.iter().map(|state| (state.producer, (state.epoch, state.next_sequence)));
        Self { states: states.collect() }
    }

    /// Everything it knows, by producer.
    pub(crate) fn snapshot(&self) -> Vec<ProducerState> {
        let state = |(&producer, &(epoch, next_sequence))| ProducerState { producer, epoch, next_sequence };
        let mut states: Vec<_> = self.states.iter().map(state).collect();
        states.sort_unstable_by_key(|state| state.producer);
        states
    }

    /// The sequence that the producer's next message must have.
    pub(crate) fn next_sequence(&self, producer: ProducerId) -> u64 {
        self.states.get(&producer).map_or(0, |(_, next)| *next)
    }

    /// What is to be done with `count` messages from `first_sequence` on. Nothing is changed.
    pub(crate) fn check(&self, producer: ProducerId, epoch: Epoch, first_sequence: u64, count: u64) -> Verdict {
        let (current, next) = self.states.get(&producer).copied().unwrap_or_default();
        if epoch < current {
            return Verdict::Fenced { current };
        }
        if first_sequence > next {
            return Verdict::Gap { expected: next };
        }
        // What was stored before counts, whoever stored it: a producer that comes back with a new epoch sends again
        // what it had no answer for.
        match next - first_sequence {
            repeated if repeated >= count => Verdict::Repeat,
            0 => Verdict::Next,
            repeated => Verdict::Partly { repeated },
        }
    }

    /// `count` messages from `first_sequence` on are stored now, or were found stored when the log was opened.
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
        /// Compared with a model that remembers every sequence that was stored, and over restarts.
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
                let verdict = producers.check(producer, epoch, first, count);
                let expected = if epoch < current {
                    Verdict::Fenced { current }
                } else if first > next {
                    Verdict::Gap { expected: next }
                } else if fresh.is_empty() {
                    Verdict::Repeat
                } else if fresh.len() as u64 == count {
                    Verdict::Next
                } else {
                    Verdict::Partly { repeated: count - fresh.len() as u64 }
                };
                prop_assert_eq!(verdict, expected);
                if let Verdict::Next | Verdict::Partly { .. } = verdict {
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
    fn the_last_sequences_there_are_do_not_overflow() {
        let mut producers = Producers::default();
        producers.record(1, 0, 0, u64::MAX - 1);
        assert_eq!(producers.check(1, 0, u64::MAX - 1, u64::MAX), Verdict::Next);
        assert_eq!(producers.check(1, 0, 0, u64::MAX), Verdict::Partly { repeated: u64::MAX - 1 });
        producers.record(1, 0, u64::MAX - 1, u64::MAX);
        assert_eq!(producers.check(1, 0, 0, u64::MAX), Verdict::Repeat);
    }
}
