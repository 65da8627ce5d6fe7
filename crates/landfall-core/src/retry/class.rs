//! Classification of failures by status, kind or code, never by text.

use std::time::Duration;

use crate::{Error, ErrorCode, ErrorKind, Failure, Verdict};

/// Whether a failure is worth a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The same call may succeed later.
    Retriable,
    /// The same call will fail again, but the caller may have a fallback.
    Permanent,
    /// Only a person can fix it; no fallback applies.
    ParkNow,
}

/// Whether a call may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Repeat {
    /// It reads, or the receiver deduplicates (an `Idempotency-Key`, a version check, an upsert).
    Safe,
    /// It writes, and a repeat writes again. Retried only if it certainly had no effect. The default: what is not known
    /// to be safe is not repeated.
    #[default]
    Unsafe,
}

impl Class {
    /// Classifies an HTTP status; `None` below 400. A redirect is not a failure: a caller that does not follow it has
    /// nothing to retry.
    pub fn from_status(status: u16) -> Option<Self> {
        match status {
            0..400 => None,
            // Request timeout, too many requests.
            408 | 429 => Some(Self::Retriable),
            400..500 => Some(Self::Permanent),
            500.. => Some(Self::Retriable),
        }
    }

    /// Classifies the kind of an error of Landfall's own ports.
    pub fn from_kind(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Unavailable | ErrorKind::Unknown | ErrorKind::InUse | ErrorKind::Internal => Self::Retriable,
            ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::Conflict | ErrorKind::Unsupported => Self::Permanent,
            ErrorKind::Schema | ErrorKind::Corrupt => Self::ParkNow,
        }
    }

    /// Classifies an error code. A custom code is retriable.
    pub fn from_code(code: &ErrorCode) -> Self {
        const PARK_NOW: [ErrorCode; 4] =
            [ErrorCode::VALIDATION, ErrorCode::TOO_LARGE, ErrorCode::VERSION_CONFLICT, ErrorCode::PARKED_BY_HAND];
        const PERMANENT: [ErrorCode; 2] = [ErrorCode::UPSTREAM_4XX, ErrorCode::FENCED];
        if PARK_NOW.contains(code) {
            Self::ParkNow
        } else if PERMANENT.contains(code) {
            Self::Permanent
        } else {
            Self::Retriable
        }
    }
}

/// The verdict for a message whose handler met such a failure and has no fallback.
impl From<Class> for Verdict {
    fn from(class: Class) -> Self {
        match class {
            Class::Retriable => Verdict::Retry,
            Class::Permanent | Class::ParkNow => Verdict::Park,
        }
    }
}

impl Failure {
    /// Creates the failure for an HTTP status, with its `Retry-After`; `None` if the status is not a failure.
    pub fn from_status(status: u16, retry_after: Option<Duration>) -> Option<Self> {
        let class = Class::from_status(status)?;
        let code = match status {
            429 => ErrorCode::RATE_LIMITED,
            408 | 504 => ErrorCode::TIMEOUT,
            503 => ErrorCode::DEPENDENCY,
            500.. => ErrorCode::UPSTREAM_5XX,
            _ => ErrorCode::UPSTREAM_4XX,
        };
        let failure = Self::new(code, format_args!("the answer was HTTP {status}"), class.into());
        Some(Self { retry_after, ..failure })
    }

    /// Creates the failure for an error of Landfall's own ports.
    pub fn from_error(error: &Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Unavailable | ErrorKind::InUse => ErrorCode::DEPENDENCY,
            ErrorKind::Unknown => ErrorCode::UNKNOWN,
            ErrorKind::Invalid => ErrorCode::VALIDATION,
            _ => ErrorCode::HANDLER,
        };
        Self::new(code, error, Class::from_kind(error.kind()).into())
    }

    /// Parks the message if its code is one of `codes`: failures that a person should see at once.
    #[must_use]
    pub fn parked_for(mut self, codes: &[ErrorCode]) -> Self {
        if codes.contains(&self.code) {
            self.verdict = Verdict::Park;
        }
        self
    }

    /// Parks instead of retrying a call that may have taken effect and is [`Repeat::Unsafe`], so that a person decides.
    #[must_use]
    pub fn repeated_if(mut self, repeat: Repeat) -> Self {
        if repeat == Repeat::Unsafe && self.verdict == Verdict::Retry && !self.certainly_not_done() {
            self.verdict = Verdict::Park;
        }
        self
    }

    /// Returns whether the code proves that the call had no effect: it was rejected, or never made.
    fn certainly_not_done(&self) -> bool {
        const NOT_DONE: [ErrorCode; 5] = [
            ErrorCode::DEPENDENCY,
            ErrorCode::RATE_LIMITED,
            ErrorCode::CIRCUIT_OPEN,
            ErrorCode::BUDGET_EXHAUSTED,
            ErrorCode::BULKHEAD_FULL,
        ];
        NOT_DONE.contains(&self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_retriable_if_a_repeat_may_succeed() {
        for status in [408, 429, 500, 501, 502, 503, 504, 507, 599] {
            assert_eq!(Class::from_status(status), Some(Class::Retriable), "{status}");
        }
        for status in [400, 401, 403, 404, 409, 410, 413, 422, 425, 451] {
            assert_eq!(Class::from_status(status), Some(Class::Permanent), "{status}");
        }
        for status in [100, 200, 204, 299, 301, 304, 307] {
            assert_eq!(Class::from_status(status), None, "{status}");
        }
    }

    #[test]
    fn rate_limit_keeps_its_retry_after() {
        let wait = Duration::from_secs(7);
        let failure = Failure::from_status(429, Some(wait)).unwrap();
        assert_eq!(
            failure,
            Failure::new(ErrorCode::RATE_LIMITED, "the answer was HTTP 429", Verdict::Retry).after(wait)
        );
        assert_eq!(Failure::from_status(422, None).unwrap().verdict, Verdict::Park);
        assert_eq!(Failure::from_status(204, None), None);
    }

    #[test]
    fn kind_is_retriable_if_nothing_has_to_change() {
        for kind in [ErrorKind::Unavailable, ErrorKind::Unknown, ErrorKind::InUse, ErrorKind::Internal] {
            assert_eq!(Verdict::from(Class::from_kind(kind)), Verdict::Retry, "{kind:?}");
        }
        for kind in [ErrorKind::Invalid, ErrorKind::NotFound, ErrorKind::Conflict, ErrorKind::Corrupt] {
            assert_eq!(Verdict::from(Class::from_kind(kind)), Verdict::Park, "{kind:?}");
        }
        let failure = Failure::from_error(&Error::new(ErrorKind::Unavailable, "gone"));
        assert_eq!((failure.code, failure.verdict), (ErrorCode::DEPENDENCY, Verdict::Retry));
    }

    #[test]
    fn code_of_an_invalid_message_parks_at_once() {
        assert_eq!(Class::from_code(&ErrorCode::VERSION_CONFLICT), Class::ParkNow);
        assert_eq!(Class::from_code(&ErrorCode::UPSTREAM_4XX), Class::Permanent);
        assert_eq!(Class::from_code(&ErrorCode::TIMEOUT), Class::Retriable);
        assert_eq!(Class::from_code(&ErrorCode::new("of their own")), Class::Retriable);
        let chosen = [ErrorCode::new("FRAUD")];
        assert_eq!(Failure::retry("?").with_code(ErrorCode::new("fraud")).parked_for(&chosen).verdict, Verdict::Park);
        assert_eq!(Failure::retry("?").parked_for(&chosen).verdict, Verdict::Retry);
    }

    #[test]
    fn unsafe_write_is_retried_only_if_it_was_rejected() {
        let after = |failure: Failure| failure.repeated_if(Repeat::Unsafe).verdict;
        assert_eq!(after(Failure::from_status(429, None).unwrap()), Verdict::Retry);
        assert_eq!(after(Failure::from_status(503, None).unwrap()), Verdict::Retry);
        assert_eq!(after(Failure::from_status(500, None).unwrap()), Verdict::Park);
        assert_eq!(after(Failure::from_status(504, None).unwrap()), Verdict::Park);
        assert_eq!(after(Failure::retry("connection reset")), Verdict::Park);
        assert_eq!(after(Failure::wait(ErrorCode::CIRCUIT_OPEN, "open")), Verdict::Wait);
        assert_eq!(Failure::retry("reset").repeated_if(Repeat::Safe).verdict, Verdict::Retry);
    }
}
