//! One error type for every port: callers decide by [`ErrorKind`], never by text.

use std::fmt;

use bytes::Bytes;

/// The result of every port method.
pub type Result<T, E = Error> = std::result::Result<T, E>;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// An error of a port: text for people, [`ErrorKind`] for code, and the source error.
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Source>,
    payload: Option<Bytes>,
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
        Self { kind, message: message.into(), source: None, payload: None }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    #[must_use]
    pub fn with_source(mut self, source: impl Into<Source>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Attaches the payload of a delivery that is not a valid message, so that its content can be kept.
    #[must_use]
    pub fn with_payload(mut self, payload: Bytes) -> Self {
        self.payload = Some(payload);
        self
    }

    /// Returns the payload of the delivery that could not be read, if the error is about one.
    pub fn payload(&self) -> Option<&Bytes> {
        self.payload.as_ref()
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
    /// Formats the message and the chain of sources, so that one `%error` field in a log line is complete. A source
    /// that only repeats what was said is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.message.clone();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let said = error.to_string();
            if !text.contains(&said) {
                text.push_str(": ");
                text.push_str(&said);
            }
            cause = error.source();
        }
        f.write_str(&text)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_shows_each_cause_once() {
        let io = || std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "connection refused");
        let inner = Error::new(ErrorKind::Unavailable, "cannot connect").with_source(io());
        let outer = Error::new(ErrorKind::Unavailable, "cannot read the outbox").with_source(inner);
        assert_eq!(outer.to_string(), "cannot read the outbox: cannot connect: connection refused");
        let repeated = Error::invalid("rejected: connection refused").with_source(io());
        assert_eq!(repeated.to_string(), "rejected: connection refused");
    }
}
