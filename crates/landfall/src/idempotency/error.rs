//! Why a request got no answer of its work.

use std::fmt;
use std::time::Duration;

/// Why a call returned no value. `E` is the error of the work.
#[derive(Debug)]
pub enum Error<E> {
    /// Another attempt is running. Try again after this time (HTTP 409 with `Retry-After`).
    InFlight { retry_after: Duration },
    /// Another request used this key (HTTP 422).
    Mismatch,
    /// Whether the work was done is unknown, and a person resolves it (HTTP 409 without `Retry-After`).
    Uncertain,
    /// The work was done, and its answer was too large to keep or has expired (HTTP 409).
    NotKept { status: u16, is_expired: bool },
    /// The token was never issued for this business, or has expired (HTTP 409).
    NotIssued,
    /// This attempt lost its lease, and the attempt that took over has no answer yet (HTTP 409).
    Fenced,
    /// The work panicked, or was dropped at shutdown. What becomes of the key depends on its policy.
    Aborted,
    /// The store failed, or refused the call, before the work (HTTP 503). The work was not begun.
    Store(landfall_core::Error),
    /// The work ran, and its transaction failed or was lost before the commit was confirmed (HTTP 503). All of it is
    /// committed, or nothing is: repeat the call with the same key, which finds the record or runs.
    Unconfirmed(landfall_core::Error),
    /// The value of the work cannot be stored as JSON, or a stored one has another shape than this build expects (HTTP
    /// 500). A defect of the program, and a repeat fails too. [`InTransaction`](super::InTransaction) has rolled back a
    /// value that it could not store. Elsewhere the work may be done.
    Value(landfall_core::Error),
    /// The work failed. Its error, unchanged.
    Work(E),
}

impl<E> Error<E> {
    /// Replaces the error of the work, such as by the response that is made of it.
    pub fn map_work<F>(self, change: impl FnOnce(E) -> F) -> Error<F> {
        match self {
            Self::InFlight { retry_after } => Error::InFlight { retry_after },
            Self::Mismatch => Error::Mismatch,
            Self::Uncertain => Error::Uncertain,
            Self::NotKept { status, is_expired } => Error::NotKept { status, is_expired },
            Self::NotIssued => Error::NotIssued,
            Self::Fenced => Error::Fenced,
            Self::Aborted => Error::Aborted,
            Self::Store(error) => Error::Store(error),
            Self::Unconfirmed(error) => Error::Unconfirmed(error),
            Self::Value(error) => Error::Value(error),
            Self::Work(error) => Error::Work(change(error)),
        }
    }

    /// Returns the sentence for a person, without the error of the store or the work.
    pub(super) fn sentence(&self) -> &'static str {
        match self {
            Self::InFlight { .. } => "another attempt with this idempotency key is running; retry later",
            Self::Mismatch => "the idempotency key was used for another request; choose a new key",
            Self::Uncertain => "whether this was done is unknown; a person decides, and repeats are refused until then",
            Self::NotKept { is_expired: true, .. } => "this was done, and its answer has expired",
            Self::NotKept { .. } => "this was done, and its answer was too large to keep",
            Self::NotIssued => "the token is unknown, expired, or of another business",
            Self::Fenced => "this attempt lost its lease, and another one has taken over",
            Self::Aborted => "the work was aborted by a panic or a shutdown",
            Self::Store(_) => "the idempotency store failed, and the work was not begun",
            Self::Unconfirmed(_) => "whether the work was committed is unknown; repeat the call with the same key",
            Self::Value(_) => "the value of the work could not be stored, or a stored value not be read",
            Self::Work(_) => "the work failed",
        }
    }
}

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) | Self::Unconfirmed(error) | Self::Value(error) => {
                write!(f, "{}: {error}", self.sentence())
            }
            Self::Work(error) => error.fmt(f),
            _ => f.write_str(self.sentence()),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for Error<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) | Self::Unconfirmed(error) | Self::Value(error) => Some(error),
            Self::Work(error) => error.source(),
            _ => None,
        }
    }
}

impl<E> From<landfall_core::Error> for Error<E> {
    fn from(error: landfall_core::Error) -> Self {
        Self::Store(error)
    }
}
