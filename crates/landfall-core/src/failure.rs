use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::fingerprint::{error_fingerprint, named_fingerprint};

/// A short upper-case word that classifies a failure, for filters, metrics and alerts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct ErrorCode(Cow<'static, str>);

impl ErrorCode {
    /// The handler returned an error without a code.
    pub const HANDLER: ErrorCode = ErrorCode(Cow::Borrowed("HANDLER_ERROR"));
    /// The handler panicked.
    pub const PANIC: ErrorCode = ErrorCode(Cow::Borrowed("HANDLER_PANIC"));
    /// The message itself is invalid: a missing field, a name that the broker cannot carry.
    pub const VALIDATION: ErrorCode = ErrorCode(Cow::Borrowed("VALIDATION_ERROR"));
    /// The message exceeds the broker's limit.
    pub const TOO_LARGE: ErrorCode = ErrorCode(Cow::Borrowed("TOO_LARGE"));
    /// The broker is unavailable.
    pub const UNAVAILABLE: ErrorCode = ErrorCode(Cow::Borrowed("BROKER_UNAVAILABLE"));
    /// The broker has no room for the message.
    pub const STORAGE_FULL: ErrorCode = ErrorCode(Cow::Borrowed("STORAGE_FULL"));
    /// The topic does not exist, and automatic creation is off.
    pub const UNKNOWN_TOPIC: ErrorCode = ErrorCode(Cow::Borrowed("UNKNOWN_TOPIC"));
    /// The broker denies this account the operation.
    pub const DENIED: ErrorCode = ErrorCode(Cow::Borrowed("DENIED"));
    /// The topic has no group yet, and the broker does not retain messages for later ones.
    pub const NO_CONSUMER: ErrorCode = ErrorCode(Cow::Borrowed("NO_CONSUMER"));
    /// A newer instance of the same producer took over.
    pub const FENCED: ErrorCode = ErrorCode(Cow::Borrowed("PRODUCER_FENCED"));
    /// An earlier message of the same producer or entity has not arrived.
    pub const SEQUENCE_GAP: ErrorCode = ErrorCode(Cow::Borrowed("SEQUENCE_GAP"));
    /// The broker did not answer in time, so the outcome is unknown.
    pub const UNKNOWN: ErrorCode = ErrorCode(Cow::Borrowed("OUTCOME_UNKNOWN"));
    /// An earlier message of the same key was not accepted.
    pub const PREDECESSOR: ErrorCode = ErrorCode(Cow::Borrowed("BEHIND_PREDECESSOR"));

    /// A newer version was already applied.
    pub const VERSION_CONFLICT: ErrorCode = ErrorCode(Cow::Borrowed("VERSION_CONFLICT"));
    /// A dependency did not answer in time; the call may have taken effect.
    pub const TIMEOUT: ErrorCode = ErrorCode(Cow::Borrowed("TIMEOUT"));
    /// A dependency is unreachable or reports itself unavailable.
    pub const DEPENDENCY: ErrorCode = ErrorCode(Cow::Borrowed("DEPENDENCY_UNAVAILABLE"));
    /// A dependency rate-limits its callers.
    pub const RATE_LIMITED: ErrorCode = ErrorCode(Cow::Borrowed("RATE_LIMITED"));
    /// A dependency failed while processing the call.
    pub const UPSTREAM_5XX: ErrorCode = ErrorCode(Cow::Borrowed("UPSTREAM_5XX"));
    /// A dependency rejected the call as invalid.
    pub const UPSTREAM_4XX: ErrorCode = ErrorCode(Cow::Borrowed("UPSTREAM_4XX"));
    /// The circuit breaker of a dependency is open.
    pub const CIRCUIT_OPEN: ErrorCode = ErrorCode(Cow::Borrowed("CIRCUIT_OPEN"));
    /// The retry budget is exhausted.
    pub const BUDGET_EXHAUSTED: ErrorCode = ErrorCode(Cow::Borrowed("BUDGET_EXHAUSTED"));
    /// The bulkhead of a dependency is full: calls in flight and queued have reached the limit.
    pub const BULKHEAD_FULL: ErrorCode = ErrorCode(Cow::Borrowed("BULKHEAD_FULL"));

    /// Predecessors of the same entity are missing.
    pub const OUT_OF_ORDER: ErrorCode = ErrorCode(Cow::Borrowed("OUT_OF_ORDER"));
    /// The effect had already happened.
    pub const DUPLICATE: ErrorCode = ErrorCode(Cow::Borrowed("DUPLICATE"));

    /// A person parked it.
    pub const PARKED_BY_HAND: ErrorCode = ErrorCode(Cow::Borrowed("PARKED_BY_HAND"));

    /// Creates a custom code: upper-cased, everything but letters and digits becomes `_`, at most 64 characters.
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

/// Why a handler or the relay failed to process a message, and what should happen next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: ErrorCode,
    pub error: String,
    pub verdict: Verdict,
    /// The earliest next attempt, if the refusing side named one. Ignored with [`Verdict::Park`].
    pub retry_after: Option<Duration>,
    /// The errors behind `error`, from the nearest to the first cause; bounded.
    pub causes: Vec<String>,
    /// The cause as the handler names it. Failures with the same cause and code are grouped.
    pub cause: Option<String>,
}

/// The most causes that are kept of an error, and the characters of each.
const MAX_CAUSES: usize = 8;
const MAX_CAUSE_CHARACTERS: usize = 300;

/// What happens to a message after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Retry with backoff; park after the last attempt.
    Retry,
    /// Retry with backoff without limit, because something it needs is unavailable. Does not count as an attempt.
    Wait,
    /// Park now: retrying cannot help.
    Park,
}

impl Failure {
    pub fn new(code: ErrorCode, error: impl fmt::Display, verdict: Verdict) -> Self {
        Self { code, error: error.to_string(), verdict, retry_after: None, causes: Vec::new(), cause: None }
    }

    pub fn retry(error: impl fmt::Display) -> Self {
        Self::new(ErrorCode::HANDLER, error, Verdict::Retry)
    }

    /// Waits for a dependency without counting attempts.
    pub fn wait(code: ErrorCode, error: impl fmt::Display) -> Self {
        Self::new(code, error, Verdict::Wait)
    }

    pub fn park(code: ErrorCode, error: impl fmt::Display) -> Self {
        Self::new(code, error, Verdict::Park)
    }

    /// Returns whether this failure counts against the maximum of attempts. Waiting does not, and neither does an
    /// unavailable dependency, which no message causes.
    pub fn spends_attempt(&self) -> bool {
        match self.verdict {
            Verdict::Wait => false,
            Verdict::Retry => self.code != ErrorCode::DEPENDENCY,
            Verdict::Park => true,
        }
    }

    /// Replaces the code.
    #[must_use]
    pub fn with_code(mut self, code: ErrorCode) -> Self {
        self.code = code;
        self
    }

    /// Sets the earliest next attempt to `time` from now.
    #[must_use]
    pub fn after(mut self, time: Duration) -> Self {
        self.retry_after = Some(time);
        self
    }
}

impl Failure {
    /// Keeps the sources of `error`, as [`From`] does. For errors that a handler converts itself.
    #[must_use]
    pub fn caused_by(mut self, error: &(dyn std::error::Error + 'static)) -> Self {
        self.causes = causes(error.source());
        self
    }

    /// Names the cause, so that failures with it are grouped whatever their text is.
    #[must_use]
    pub fn with_cause(mut self, cause: impl Into<String>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Returns the fingerprint: of the cause if the handler named one, else of the text.
    pub fn fingerprint(&self) -> String {
        match &self.cause {
            Some(cause) => named_fingerprint(self.code.as_str(), cause),
            None => error_fingerprint(self.code.as_str(), &self.error),
        }
    }
}

/// Returns the texts of an error and its sources, without repetitions: many errors contain the text of their source.
fn causes(error: Option<&(dyn std::error::Error + 'static)>) -> Vec<String> {
    let chain = std::iter::successors(error, |error| error.source());
    let mut texts: Vec<String> =
        chain.take(MAX_CAUSES).map(|error| error.to_string().chars().take(MAX_CAUSE_CHARACTERS).collect()).collect();
    texts.dedup();
    texts
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.error)
    }
}

/// Lets a handler use `?` on any error; the failure is retried.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let causes = causes(error.source());
        Self { causes, ..Failure::retry(error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, ErrorKind};

    #[test]
    fn sources_of_an_error_are_kept_and_bounded() {
        let mut error = Error::new(ErrorKind::Internal, "first");
        for number in 0..20 {
            error = Error::new(ErrorKind::Internal, format!("{number} {}", "x".repeat(1000))).with_source(error);
        }
        let failure = Failure::from(error);
        assert_eq!(failure.causes.len(), MAX_CAUSES);
        assert!(failure.causes[0].starts_with("18 ") && failure.causes[0].len() == MAX_CAUSE_CHARACTERS);
        let inner = Error::new(ErrorKind::Internal, "disk full");
        let failure = Failure::park(ErrorCode::HANDLER, "no").caused_by(&Error::invalid("write").with_source(inner));
        assert_eq!(failure.causes, ["disk full"]);
    }

    #[test]
    fn named_cause_groups_failures_with_different_texts() {
        let failure = |text: &str| Failure::retry(text).with_cause("card declined");
        assert_eq!(failure("a").fingerprint(), failure("b").fingerprint());
        assert_ne!(failure("a").fingerprint(), Failure::retry("a").fingerprint());
    }
}
