//! One error type for every port: callers decide by [`ErrorKind`], never by text.

use std::fmt;

/// What every port returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Something a port could not do. The text is a sentence for a person, the kind is for code, the source is kept.
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Source>,
}

/// Why it could not be done, as far as a caller may want to act differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input is wrong and will be wrong tomorrow; nothing was written.
    Invalid,
    /// The thing named does not exist.
    NotFound,
    /// The thing is in a state that does not allow this.
    Conflict,
    /// The server cannot be reached or answered with a passing fault; nothing is known to have been written.
    Unavailable,
    /// The request was sent and the answer never came: it may or may not have happened. Look, never retry blindly.
    Unknown,
    /// The database schema is missing, or newer than this build understands.
    Schema,
    /// Somebody else holds what only one may hold (a data folder, a lease).
    InUse,
    /// Stored bytes are not what was written. Never served, never skipped silently.
    Corrupt,
    /// This adapter or build cannot do that.
    Unsupported,
    /// Anything else: a bug, or an answer nobody expected.
    Internal,
}

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    #[must_use]
    pub fn with_source(mut self, source: impl Into<Source>) -> Self {
        self.source = Some(source.into());
        self
    }

    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later with nobody changing anything.
    pub fn is_temporary(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable | ErrorKind::Unknown | ErrorKind::InUse)
    }
}

impl fmt::Display for Error {
    /// The sentence, then the chain of causes, so that one `%error` field in a log line tells the whole story.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}
