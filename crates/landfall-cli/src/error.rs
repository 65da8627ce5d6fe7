//! What the command says when it cannot do what was asked, and the exit code that goes with it.
//!
//! Invariant: the text is one sentence for a person, without a secret in it; `main` prints it as `landfall: <sentence>`.

use std::fmt;
use std::process::ExitCode;

use landfall::ErrorKind;

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a command ends early.
#[derive(Debug)]
pub(crate) enum Error {
    /// The thing asked for is not so: not found, unreachable, in use, another schema. Exit code 1.
    NotSo(String),
    /// Not so because somebody else holds what only one may hold; apart, because some verbs know a way round it.
    InUse(String),
    /// The command was used wrongly: a flag, a key of the configuration, a value that can never be right. Exit code 2.
    WrongUse(String),
    /// Whoever read our output went away. Nobody is left to tell, and nothing is wrong. Exit code 0.
    ReaderGone,
}

impl Error {
    pub(crate) fn not_so(sentence: impl Into<String>) -> Self {
        Self::NotSo(sentence.into())
    }

    pub(crate) fn wrong_use(sentence: impl Into<String>) -> Self {
        Self::WrongUse(sentence.into())
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::ReaderGone => ExitCode::SUCCESS,
            Self::NotSo(_) | Self::InUse(_) => ExitCode::from(1),
            Self::WrongUse(_) => ExitCode::from(2),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSo(sentence) | Self::InUse(sentence) | Self::WrongUse(sentence) => f.write_str(sentence),
            Self::ReaderGone => f.write_str("the reader of the output went away"),
        }
    }
}

impl std::error::Error for Error {}

/// Input that will be wrong tomorrow is wrong use; everything else is a fact about the world.
impl From<landfall::Error> for Error {
    fn from(error: landfall::Error) -> Self {
        match error.kind() {
            ErrorKind::Invalid | ErrorKind::Unsupported => Self::WrongUse(error.to_string()),
            ErrorKind::InUse => Self::InUse(error.to_string()),
            ErrorKind::Corrupt => Self::NotSo(format!("{error}; `landfall topic verify` finds all that is damaged")),
            _ => Self::NotSo(error.to_string()),
        }
    }
}

/// For writing to stdout, the only I/O whose bare error reaches this far.
impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::ReaderGone,
            _ => Self::NotSo(format!("the output could not be written: {error}")),
        }
    }
}
