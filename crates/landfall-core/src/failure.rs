use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// A short upper-case word that says what went wrong, for filters, metrics and alerts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct ErrorCode(Cow<'static, str>);

impl ErrorCode {
    /// The handler answered with an error and gave no code of its own.
    pub const HANDLER: ErrorCode = ErrorCode(Cow::Borrowed("HANDLER_ERROR"));
    /// The handler panicked.
    pub const PANIC: ErrorCode = ErrorCode(Cow::Borrowed("HANDLER_PANIC"));
    /// The message itself cannot be right: a field missing, a name that cannot travel.
    pub const VALIDATION: ErrorCode = ErrorCode(Cow::Borrowed("VALIDATION_ERROR"));
    /// The message is larger than the broker takes.
    pub const TOO_LARGE: ErrorCode = ErrorCode(Cow::Borrowed("TOO_LARGE"));
    /// The broker cannot be reached.
    pub const UNAVAILABLE: ErrorCode = ErrorCode(Cow::Borrowed("BROKER_UNAVAILABLE"));
    /// The broker has no room for the message.
    pub const STORAGE_FULL: ErrorCode = ErrorCode(Cow::Borrowed("STORAGE_FULL"));
    /// The broker knows no such topic, and was told not to make it.
    pub const UNKNOWN_TOPIC: ErrorCode = ErrorCode(Cow::Borrowed("UNKNOWN_TOPIC"));
    /// The broker does not let this account do that.
    pub const DENIED: ErrorCode = ErrorCode(Cow::Borrowed("DENIED"));
    /// Nobody subscribed yet, and the broker keeps nothing for those who come later.
    pub const NO_CONSUMER: ErrorCode = ErrorCode(Cow::Borrowed("NO_CONSUMER"));
    /// A newer instance of the same producer has taken over.
    pub const FENCED: ErrorCode = ErrorCode(Cow::Borrowed("PRODUCER_FENCED"));
    /// An earlier message of the same producer, or an earlier change of the same entity, has not arrived.
    pub const SEQUENCE_GAP: ErrorCode = ErrorCode(Cow::Borrowed("SEQUENCE_GAP"));
    /// The broker did not answer in time.
    pub const UNKNOWN: ErrorCode = ErrorCode(Cow::Borrowed("OUTCOME_UNKNOWN"));
    /// An earlier message of the same key was not accepted.
    pub const PREDECESSOR: ErrorCode = ErrorCode(Cow::Borrowed("BEHIND_PREDECESSOR"));

    /// The change is older than what was applied already.
    pub const VERSION_CONFLICT: ErrorCode = ErrorCode(Cow::Borrowed("VERSION_CONFLICT"));
    /// A dependency did not answer in time: what was asked of it may have happened.
    pub const TIMEOUT: ErrorCode = ErrorCode(Cow::Borrowed("TIMEOUT"));
    /// A dependency cannot be reached, or says that it cannot work now.
    pub const DEPENDENCY: ErrorCode = ErrorCode(Cow::Borrowed("DEPENDENCY_UNAVAILABLE"));
    /// A dependency asks for fewer calls.
    pub const RATE_LIMITED: ErrorCode = ErrorCode(Cow::Borrowed("RATE_LIMITED"));
    /// A dependency failed while it worked on the call.
    pub const UPSTREAM_5XX: ErrorCode = ErrorCode(Cow::Borrowed("UPSTREAM_5XX"));
    /// A dependency says that the call is wrong.
    pub const UPSTREAM_4XX: ErrorCode = ErrorCode(Cow::Borrowed("UPSTREAM_4XX"));
    /// A dependency failed too often of late and is left alone for a while.
    pub const CIRCUIT_OPEN: ErrorCode = ErrorCode(Cow::Borrowed("CIRCUIT_OPEN"));
    /// More retries now would be too many beside the calls that succeed.
    pub const BUDGET_EXHAUSTED: ErrorCode = ErrorCode(Cow::Borrowed("BUDGET_EXHAUSTED"));
    /// As many calls as are allowed at once are on their way to the dependency, or waiting for their turn.
    pub const BULKHEAD_FULL: ErrorCode = ErrorCode(Cow::Borrowed("BULKHEAD_FULL"));

    /// Messages of the same entity that come before it are missing.
    pub const OUT_OF_ORDER: ErrorCode = ErrorCode(Cow::Borrowed("OUT_OF_ORDER"));
    /// Its effect was there already.
    pub const DUPLICATE: ErrorCode = ErrorCode(Cow::Borrowed("DUPLICATE"));

    /// A person parked it.
    pub const PARKED_BY_HAND: ErrorCode = ErrorCode(Cow::Borrowed("PARKED_BY_HAND"));

    /// A code of the caller's own: upper-cased, everything but letters and digits becomes `_`, at most 64 characters.
    pub fn new(text: &str) -> Self {
        let code: String = text
            .chars()
            .take(64)
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
            .collect();
        if code.is_empty() { Self::HANDLER } else { Self(code.into()) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a handler (or the relay) did not get a message through, and what should happen next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: ErrorCode,
    pub error: String,
    pub verdict: Verdict,
    /// Not before this time has passed, if whoever refused it said so. Means nothing with [`Verdict::Park`].
    pub retry_after: Option<Duration>,
}

/// What a failure asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It may work later: try again with backoff, park after the maximum.
    Retry,
    /// It was not really tried, since something it needs is out of order: try again with backoff, for as long as it
    /// takes. The message is not to blame and spends no attempt.
    Wait,
    /// It will not work until a person changes something: park now.
    Park,
}

impl Failure {
    pub fn new(code: ErrorCode, error: impl fmt::Display, verdict: Verdict) -> Self {
        Self { code, error: error.to_string(), verdict, retry_after: None }
    }

    pub fn retry(error: impl fmt::Display) -> Self {
        Self::new(ErrorCode::HANDLER, error, Verdict::Retry)
    }

    /// Waits for a dependency without spending attempts.
    pub fn wait(code: ErrorCode, error: impl fmt::Display) -> Self {
        Self::new(code, error, Verdict::Wait)
    }

    pub fn park(code: ErrorCode, error: impl fmt::Display) -> Self {
        Self::new(code, error, Verdict::Park)
    }

    /// Whether a try that ended so counts against the maximum: not if the message waits, and not if a dependency could
    /// not be reached or says that it cannot work now, for which no message is to blame.
    pub fn spends_attempt(&self) -> bool {
        match self.verdict {
            Verdict::Wait => false,
            Verdict::Retry => self.code != ErrorCode::DEPENDENCY,
            Verdict::Park => true,
        }
    }

    /// The same with another code.
    #[must_use]
    pub fn with_code(mut self, code: ErrorCode) -> Self {
        self.code = code;
        self
    }

    /// The same, not to be tried again before `time` has passed.
    #[must_use]
    pub fn after(mut self, time: Duration) -> Self {
        self.retry_after = Some(time);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.error)
    }
}

/// So that a handler can use `?` on whatever its own code returns; such an error is retried.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::retry(error)
    }
}
