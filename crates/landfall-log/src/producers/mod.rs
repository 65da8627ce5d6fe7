//! Idempotent producers: who they are, and how far each has come.

/// Who wrote a message: given out by the log, once, for a name.
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

/// How far every producer has come in one partition.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    states: std::collections::BTreeMap<ProducerId, ProducerState>,
}

impl Producers {
    pub(crate) fn from_snapshot(states: &[ProducerState]) -> Self {
        Self { states: states.iter().map(|state| (state.producer, *state)).collect() }
    }

    pub(crate) fn snapshot(&self) -> Vec<ProducerState> {
        self.states.values().copied().collect()
    }

    pub(crate) fn record(&mut self, producer: ProducerId, epoch: Epoch, first_sequence: u64, count: u64) {
        let next_sequence = first_sequence + count;
        self.states.insert(producer, ProducerState { producer, epoch, next_sequence });
    }
}
