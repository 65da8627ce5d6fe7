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
