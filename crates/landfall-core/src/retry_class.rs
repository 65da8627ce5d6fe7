//! Which failures are worth another try: decided by status, kind or code, never by text.

use std::time::Duration;

use crate::{Error, ErrorCode, ErrorKind, Failure, Verdict};

/// What a failure says about the next try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The same call may succeed later.
    Retriable,
    /// The same call fails tomorrow too, but the caller may have another way.
    Permanent,
    /// Nobody but a person can put it right: no other way is worth looking for.
    ParkNow,
}

/// Whether a call may be made twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Repeat {
    /// It reads, or whoever receives it recognises a repeat (an `Idempotency-Key`, a version check, an upsert).
    #[default]
    Safe,
    /// It writes, and a second time writes again: only what certainly was not done is tried again.
    Unsafe,
}

impl Class {
    /// By HTTP status; `None` for one that is no failure (below 400). A redirect is none either, and for whoever does
    /// not follow it there is nothing to retry.
    pub fn from_status(status: u16) -> Option<Self> {
        match status {
            0..400 => None,
            // The request arrived too slowly, or is one of too many.
            408 | 429 => Some(Self::Retriable),
            400..500 => Some(Self::Permanent),
            500.. => Some(Self::Retriable),
        }
    }

    /// By the kind of an error of Landfall's own ports.
    pub fn from_kind(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Unavailable | ErrorKind::Unknown | ErrorKind::InUse | ErrorKind::Internal => Self::Retriable,
            ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::Conflict | ErrorKind::Unsupported => Self::Permanent,
            ErrorKind::Schema | ErrorKind::Corrupt => Self::ParkNow,
        }
    }

    /// By code. A code that is not one of Landfall's own is retriable: nobody knows better.
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

/// What a message asks for whose handler met such a failure and has no other way.
impl From<Class> for Verdict {
    fn from(class: Class) -> Self {
        match class {
            Class::Retriable => Verdict::Retry,
            Class::Permanent | Class::ParkNow => Verdict::Park,
        }
    }
}

impl Failure {
    /// The failure that an HTTP status stands for, with what its `Retry-After` asked for; `None` if it is no failure.
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

    /// The failure that an error of one of Landfall's own ports stands for.
    pub fn from_error(error: &Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Unavailable | ErrorKind::InUse => ErrorCode::DEPENDENCY,
            ErrorKind::Unknown => ErrorCode::UNKNOWN,
            ErrorKind::Invalid => ErrorCode::VALIDATION,
            _ => ErrorCode::HANDLER,
        };
        Self::new(code, error, Class::from_kind(error.kind()).into())
    }

    /// The same, to be parked if one of `codes` is its own: for what a service wants a person to see at once.
    #[must_use]
    pub fn parked_for(mut self, codes: &[ErrorCode]) -> Self {
        if codes.contains(&self.code) {
            self.verdict = Verdict::Park;
        }
        self
    }

    /// The same as far as `repeat` allows: what may have been done and must not be done twice is parked, so that a
    /// person looks, instead of tried again.
    #[must_use]
    pub fn repeated_if(mut self, repeat: Repeat) -> Self {
        if repeat == Repeat::Unsafe && self.verdict == Verdict::Retry && !self.certainly_not_done() {
            self.verdict = Verdict::Park;
        }
        self
    }

    /// Whether its code says that the call had no effect: it was turned away, or never made.
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
    fn a_status_is_retried_if_the_same_request_may_succeed_later() {
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
    fn a_rate_limit_keeps_the_time_that_was_asked_for() {
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
    fn a_kind_is_retried_if_nobody_has_to_change_anything() {
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
    fn a_code_is_parked_at_once_if_the_message_cannot_become_right() {
        assert_eq!(Class::from_code(&ErrorCode::VERSION_CONFLICT), Class::ParkNow);
        assert_eq!(Class::from_code(&ErrorCode::UPSTREAM_4XX), Class::Permanent);
        assert_eq!(Class::from_code(&ErrorCode::TIMEOUT), Class::Retriable);
        assert_eq!(Class::from_code(&ErrorCode::new("of their own")), Class::Retriable);
        let chosen = [ErrorCode::new("FRAUD")];
        assert_eq!(Failure::retry("?").with_code(ErrorCode::new("fraud")).parked_for(&chosen).verdict, Verdict::Park);
        assert_eq!(Failure::retry("?").parked_for(&chosen).verdict, Verdict::Retry);
    }

    #[test]
    fn a_write_that_is_not_idempotent_is_repeated_only_if_it_was_turned_away() {
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
