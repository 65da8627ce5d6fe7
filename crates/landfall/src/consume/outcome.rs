//! What became of a delivered message.

/// How a message was settled. From here on its delivery may be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handled {
    /// The handler ran and its writes committed.
    Effect,
    /// An earlier delivery was settled already, or the effect was there.
    Duplicate,
    /// Queued behind a dead letter of its key.
    Held,
    /// A dead letter.
    Parked,
    /// Waits in the retry lane for its next attempt.
    Delayed,
}

impl Handled {
    /// The value of the metric label `outcome`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Effect => "effect",
            Self::Duplicate => "duplicate",
            Self::Held => "held",
            Self::Parked => "parked",
            Self::Delayed => "delayed",
        }
    }
}
