use crate::ErrorCode;

/// The outcome of publishing one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The broker stored it, as durably as it is configured to.
    Accepted(Position),
    /// The broker refused it and did not store it.
    Refused(Refusal),
    /// A timeout or a lost connection after sending: it may be stored. Never treated as failed. It is published again
    /// with the same id, and the consumer's inbox absorbs a duplicate.
    Unknown(String),
}

/// The position of a message in a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    pub partition: u32,
    pub offset: u64,
}

/// Why a broker refused a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub code: ErrorCode,
    pub reason: String,
    /// Whether the broker may accept the same message later.
    pub retriable: bool,
}

impl Outcome {
    pub fn is_accepted(&self) -> bool {
        matches!(self, Outcome::Accepted(_))
    }

    pub fn retry_later(code: ErrorCode, reason: impl Into<String>) -> Self {
        Outcome::Refused(Refusal { code, reason: reason.into(), retriable: true })
    }

    pub fn refuse(code: ErrorCode, reason: impl Into<String>) -> Self {
        Outcome::Refused(Refusal { code, reason: reason.into(), retriable: false })
    }

    /// The outcome of a message that was not sent because its predecessor was not accepted.
    pub fn behind_predecessor() -> Self {
        Self::retry_later(ErrorCode::PREDECESSOR, "an earlier message of the same key was not accepted")
    }
}
