//! The command's error type and the exit code of each kind.
//!
//! Invariant: the text is one sentence for a person and holds no secret; `main` prints it as `landfall: <sentence>`.

use std::fmt;
use std::process::ExitCode;

use landfall::ErrorKind;

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a command stops early.
#[derive(Debug)]
pub(crate) enum Error {
    /// The request cannot be met: not found, unreachable, wrong schema version. Exit code 1.
    Failed(String),
    /// A server is unreachable or rejects the credentials, which may pass. The daemon waits for it. Exit code 1.
    Outage(String),
    /// Another process holds an exclusive lock. Separate from `Failed` because some commands add advice. Exit code 1.
    InUse(String),
    /// Wrong usage: an invalid flag, configuration key or value, which no retry fixes. Exit code 2.
    Usage(String),
    /// The reader of stdout closed the pipe, as `head` does. Prints nothing; exit code 0.
    OutputClosed,
}

impl Error {
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }

    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::OutputClosed => ExitCode::SUCCESS,
            Self::Failed(_) | Self::Outage(_) | Self::InUse(_) => ExitCode::from(1),
            Self::Usage(_) => ExitCode::from(2),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(text) | Self::Outage(text) | Self::InUse(text) | Self::Usage(text) => f.write_str(text),
            Self::OutputClosed => f.write_str("the reader closed the output"),
        }
    }
}

impl std::error::Error for Error {}

/// Invalid input is a usage error; every other kind can succeed later with the same input.
impl From<landfall::Error> for Error {
    fn from(error: landfall::Error) -> Self {
        match error.kind() {
            ErrorKind::Invalid | ErrorKind::Unsupported => Self::Usage(error.to_string()),
            ErrorKind::InUse => Self::InUse(error.to_string()),
            ErrorKind::Unavailable | ErrorKind::Unknown => Self::Outage(error.to_string()),
            ErrorKind::Corrupt => Self::Failed(format!("{error}; `landfall topic verify` lists all damage")),
            _ => Self::Failed(error.to_string()),
        }
    }
}

/// Only writes to stdout convert a bare I/O error; all other I/O adds its own context.
impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Failed(format!("cannot write to stdout: {error}")),
        }
    }
}
