//! One error type for every port: callers decide by [`ErrorKind`], never by text.

use std::fmt;

/// The result of every port method.
pub type Result<T, E = Error> = std::result::Result<T, E>;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// An error of a port: text for people, [`ErrorKind`] for code, and the source error.
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Source>,
}

/// The category of an error, as far as callers act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input is invalid and stays so; nothing was written.
    Invalid,
    /// The named object does not exist.
    NotFound,
    /// The object's state does not allow this.
    Conflict,
    /// The server is unreachable or reported a temporary fault; nothing is known to have been written.
    Unavailable,
    /// The request was sent and no response arrived: it may have happened. Check before retrying.
    Unknown,
    /// The database schema is missing, or newer than this build understands.
    Schema,
    /// Another holder has an exclusive resource (a data folder, a lease).
    InUse,
    /// Stored bytes differ from what was written. Never served, never skipped silently.
    Corrupt,
    /// This adapter or build does not support the operation.
    Unsupported,
    /// Anything else: a bug, or an unexpected response.
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

    /// Returns whether the same call may succeed later without any change.
    pub fn is_temporary(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable | ErrorKind::Unknown | ErrorKind::InUse)
    }
}

impl fmt::Display for Error {
    /// Formats the message and the chain of sources, so that one `%error` field in a log line is complete.
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
