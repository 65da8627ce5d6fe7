//! What the client and the server say, as outcomes and errors.

use std::fmt;

use async_nats::jetstream::context::{PublishError, PublishErrorKind, RequestError, RequestErrorKind};
use async_nats::jetstream::{self, ErrorCode as Code};
use landfall_core::{Error, ErrorCode, ErrorKind, Outcome};

/// What an attempt to publish came to, apart from being accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The server said no, or nothing was sent.
    Not(Outcome),
    /// No stream listens on the subject: nothing was stored.
    NobodyListens,
    /// Nobody knows.
    Unknown(String),
}

impl Trouble {
    pub(crate) fn outcome(self) -> Outcome {
        match self {
            Self::Not(outcome) => outcome,
            Self::NobodyListens => Outcome::retry_later(ErrorCode::UNKNOWN_TOPIC, "no stream listens for this topic"),
            Self::Unknown(why) => Outcome::Unknown(why),
        }
    }
}

/// What an error means that came in place of an acknowledgement, after the message was sent.
pub(crate) fn of_acknowledgement(error: &PublishError) -> Trouble {
    match error.kind() {
        PublishErrorKind::StreamNotFound => Trouble::NobodyListens,
        PublishErrorKind::MaxPayloadExceeded => Trouble::Not(Outcome::refuse(ErrorCode::TOO_LARGE, error.to_string())),
        PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe => Trouble::Unknown(error.to_string()),
        _ => match std::error::Error::source(error).and_then(|source| source.downcast_ref::<jetstream::Error>()) {
            Some(said) => of_server(said.error_code().0, &said.to_string()),
            // An answer that nobody understands is no answer.
            None => Trouble::Unknown(error.to_string()),
        },
    }
}

/// What an error means that kept a message from being sent.
pub(crate) fn before_sending(error: &PublishError) -> Trouble {
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => Trouble::Not(Outcome::refuse(ErrorCode::TOO_LARGE, error.to_string())),
        _ => Trouble::Not(Outcome::retry_later(ErrorCode::UNAVAILABLE, format!("not sent: {error}"))),
    }
}

/// The server's error codes. Whatever it refuses with one of them it has not stored.
pub(crate) fn of_server(code: u64, said: &str) -> Trouble {
    let later = |code: ErrorCode| Trouble::Not(Outcome::retry_later(code, said));
    match Code(code) {
        Code::STREAM_MESSAGE_EXCEEDS_MAXIMUM | Code::STREAM_HEADER_EXCEEDS_MAXIMUM => {
            Trouble::Not(Outcome::refuse(ErrorCode::TOO_LARGE, said))
        }
        // "maximum bytes exceeded" and its like, and a disk that takes nothing more.
        Code::STREAM_STORE_FAILED
        | Code::STORAGE_RESOURCES_EXCEEDED
        | Code::MEMORY_RESOURCES_EXCEEDED
        | Code::ACCOUNT_RESOURCES_EXCEEDED
        | Code::INSUFFICIENT_RESOURCES => later(ErrorCode::STORAGE_FULL),
        Code::STREAM_NOT_FOUND => later(ErrorCode::UNKNOWN_TOPIC),
        _ => later(ErrorCode::UNAVAILABLE),
    }
}

/// This account may not publish to the subject.
#[derive(Debug)]
pub(crate) struct Denied(pub(crate) String);

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this account may not publish to {}", self.0)
    }
}

impl std::error::Error for Denied {}

/// Whether the account may not do it, and not the server cannot.
pub(crate) fn is_denied(error: &Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.is::<Denied>())
}

/// The server does not let this account publish to `subject`, and has stored nothing.
pub(crate) fn denied(subject: &str) -> Trouble {
    Trouble::Not(Outcome::retry_later(ErrorCode::DENIED, Denied(subject.to_owned()).to_string()))
}

/// Why nothing could be sent to a topic, for every message that was to go there.
pub(crate) fn of_topic(error: &Error) -> Outcome {
    match error.kind() {
        _ if is_denied(error) => Outcome::retry_later(ErrorCode::DENIED, error.to_string()),
        ErrorKind::Invalid => Outcome::refuse(ErrorCode::VALIDATION, error.to_string()),
        ErrorKind::NotFound | ErrorKind::Conflict => Outcome::retry_later(ErrorCode::UNKNOWN_TOPIC, error.to_string()),
        _ => Outcome::retry_later(ErrorCode::UNAVAILABLE, error.to_string()),
    }
}

/// What the server's own API refused.
pub(crate) fn of_api(what: &str, said: jetstream::Error) -> Error {
    let kind = match said.error_code() {
        Code::STREAM_NOT_FOUND | Code::CONSUMER_NOT_FOUND | Code::NO_MESSAGE_FOUND => ErrorKind::NotFound,
        Code::CONSUMER_ALREADY_EXISTS | Code::STREAM_NAME_EXIST => ErrorKind::Conflict,
        // More replicas than there are servers to hold them, or several without a cluster.
        Code::STREAM_REPLICAS_NOT_SUPPORTED => ErrorKind::Unsupported,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, what).with_source(said)
}

/// What kept the server's own API from being asked, or from answering.
pub(crate) fn of_request(what: &str, error: RequestError) -> Error {
    let kind = match error.kind() {
        RequestErrorKind::TimedOut => ErrorKind::Unknown,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, what).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_of_the_server_has_its_code() {
        for (code, said, expected, retriable) in [
            (10054, "message size exceeds maximum allowed", ErrorCode::TOO_LARGE, false),
            (10097, "header size exceeds maximum allowed of 64k", ErrorCode::TOO_LARGE, false),
            (10077, "maximum bytes exceeded", ErrorCode::STORAGE_FULL, true),
            (10047, "insufficient storage resources available", ErrorCode::STORAGE_FULL, true),
            (10059, "stream not found", ErrorCode::UNKNOWN_TOPIC, true),
            (10008, "JetStream system temporarily unavailable", ErrorCode::UNAVAILABLE, true),
        ] {
            let Outcome::Refused(refusal) = of_server(code, said).outcome() else { panic!("{said}") };
            assert_eq!((refusal.code, refusal.retriable), (expected, retriable), "{said}");
        }
    }

    #[test]
    fn no_answer_is_unknown_and_nobody_listening_is_not() {
        let of = |kind| of_acknowledgement(&PublishError::new(kind));
        assert!(matches!(of(PublishErrorKind::TimedOut), Trouble::Unknown(_)));
        assert!(matches!(of(PublishErrorKind::BrokenPipe), Trouble::Unknown(_)));
        assert_eq!(of(PublishErrorKind::StreamNotFound), Trouble::NobodyListens);
    }
}
