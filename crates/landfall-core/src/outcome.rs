use crate::ErrorCode;

/// What became of one message that was handed to a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The broker has it, as durably as it was configured to promise.
    Accepted(Position),
    /// The broker does not have it, and said so.
    Refused(Refusal),
    /// Nobody knows: a timeout or a lost connection after sending. Never treated as "failed": it is sent again with
    /// the same id, and the consumer's inbox absorbs the copy if there was one.
    Unknown(String),
}

/// Where a broker put a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    pub partition: u32,
    pub offset: u64,
}

/// Why a broker did not take a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub code: ErrorCode,
    pub reason: String,
    /// Whether the same message may be taken later.
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

    /// For a message that was not sent because an earlier one of its key was not accepted.
    pub fn behind_predecessor() -> Self {
        Self::retry_later(ErrorCode::PREDECESSOR, "an earlier message of the same key was not accepted")
    }
}
