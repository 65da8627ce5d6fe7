//! Maps errors of the client and the server to publish outcomes and error kinds.

use std::fmt;

use async_nats::jetstream::context::{PublishError, PublishErrorKind, RequestError, RequestErrorKind};
use async_nats::jetstream::{self, ErrorCode as Code};
use landfall_core::{Error, ErrorCode, ErrorKind, Outcome};

/// Why a message was not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SendError {
    /// The server refused the message, or it was not sent.
    NotStored(Outcome),
    /// No stream has the subject: nothing was stored.
    NoStream,
    /// The server refused an atomic batch as a whole: nothing of it was stored.
    BatchRefused(String),
    /// It is unknown whether the message was stored.
    Unknown(String),
}

impl SendError {
    pub(crate) fn outcome(self) -> Outcome {
        match self {
            Self::NotStored(outcome) => outcome,
            Self::NoStream => Outcome::retry_later(ErrorCode::UNKNOWN_TOPIC, "no stream exists for this topic"),
            Self::BatchRefused(why) => Outcome::retry_later(ErrorCode::UNAVAILABLE, why),
            Self::Unknown(why) => Outcome::Unknown(why),
        }
    }
}

/// Maps an error that arrived in place of an acknowledgement, after the message was sent.
pub(crate) fn from_ack_error(error: &PublishError) -> SendError {
    match error.kind() {
        PublishErrorKind::StreamNotFound => SendError::NoStream,
        PublishErrorKind::MaxPayloadExceeded => {
            SendError::NotStored(Outcome::refuse(ErrorCode::TOO_LARGE, error.to_string()))
        }
        PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe => SendError::Unknown(error.to_string()),
        _ => match std::error::Error::source(error).and_then(|source| source.downcast_ref::<jetstream::Error>()) {
            Some(error) => from_server_code(error.error_code().0, &error.to_string()),
            // An answer that cannot be parsed counts as no answer.
            None => SendError::Unknown(error.to_string()),
        },
    }
}

/// Maps an error that prevented the message from being sent.
pub(crate) fn from_unsent(error: &PublishError) -> SendError {
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => {
            SendError::NotStored(Outcome::refuse(ErrorCode::TOO_LARGE, error.to_string()))
        }
        _ => SendError::NotStored(Outcome::retry_later(ErrorCode::UNAVAILABLE, format!("not sent: {error}"))),
    }
}

/// Maps the server's error codes. A message that it refuses with one of them is not stored.
pub(crate) fn from_server_code(code: u64, description: &str) -> SendError {
    let later = |code: ErrorCode| SendError::NotStored(Outcome::retry_later(code, description));
    match Code(code) {
        Code::STREAM_MESSAGE_EXCEEDS_MAXIMUM | Code::STREAM_HEADER_EXCEEDS_MAXIMUM => {
            SendError::NotStored(Outcome::refuse(ErrorCode::TOO_LARGE, description))
        }
        // "maximum bytes exceeded" and similar limits, and a full disk.
        Code::STREAM_STORE_FAILED
        | Code::STORAGE_RESOURCES_EXCEEDED
        | Code::MEMORY_RESOURCES_EXCEEDED
        | Code::ACCOUNT_RESOURCES_EXCEEDED
        | Code::INSUFFICIENT_RESOURCES => later(ErrorCode::STORAGE_FULL),
        Code::STREAM_NOT_FOUND => later(ErrorCode::UNKNOWN_TOPIC),
        _ if (10174..=10179).contains(&code) || (10199..=10211).contains(&code) => {
            SendError::BatchRefused(description.to_owned())
        }
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

/// Whether the error is a missing permission rather than an unavailable server.
pub(crate) fn is_denied(error: &Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.is::<Denied>())
}

/// The server refused to let this account publish to `subject`, and stored nothing.
pub(crate) fn denied(subject: &str) -> SendError {
    SendError::NotStored(Outcome::retry_later(ErrorCode::DENIED, Denied(subject.to_owned()).to_string()))
}

/// Returns the outcome of messages to a topic that could not be resolved.
pub(crate) fn unresolved_topic(error: &Error) -> Outcome {
    match error.kind() {
        _ if is_denied(error) => Outcome::retry_later(ErrorCode::DENIED, error.to_string()),
        ErrorKind::Invalid => Outcome::refuse(ErrorCode::VALIDATION, error.to_string()),
        ErrorKind::NotFound | ErrorKind::Conflict => Outcome::retry_later(ErrorCode::UNKNOWN_TOPIC, error.to_string()),
        _ => Outcome::retry_later(ErrorCode::UNAVAILABLE, error.to_string()),
    }
}

/// The error of a management request that the server refused.
pub(crate) fn api_error(what: &str, error: jetstream::Error) -> Error {
    let kind = match error.error_code() {
        Code::STREAM_NOT_FOUND | Code::CONSUMER_NOT_FOUND | Code::NO_MESSAGE_FOUND => ErrorKind::NotFound,
        Code::CONSUMER_ALREADY_EXISTS | Code::STREAM_NAME_EXIST => ErrorKind::Conflict,
        // More replicas than servers, or several replicas without a cluster.
        Code::STREAM_REPLICAS_NOT_SUPPORTED => ErrorKind::Unsupported,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, what).with_source(error)
}

/// The error of a management request that could not be sent or was not answered.
pub(crate) fn request_error(what: &str, error: RequestError) -> Error {
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
    fn server_errors_map_to_error_codes() {
        for (code, said, expected, retriable) in [
            (10054, "message size exceeds maximum allowed", ErrorCode::TOO_LARGE, false),
            (10097, "header size exceeds maximum allowed of 64k", ErrorCode::TOO_LARGE, false),
            (10077, "maximum bytes exceeded", ErrorCode::STORAGE_FULL, true),
            (10047, "insufficient storage resources available", ErrorCode::STORAGE_FULL, true),
            (10059, "stream not found", ErrorCode::UNKNOWN_TOPIC, true),
            (10008, "JetStream system temporarily unavailable", ErrorCode::UNAVAILABLE, true),
        ] {
            let Outcome::Refused(refusal) = from_server_code(code, said).outcome() else { panic!("{said}") };
            assert_eq!((refusal.code, refusal.retriable), (expected, retriable), "{said}");
        }
        let duplicate = "atomic publish batch contains duplicate message id";
        assert_eq!(from_server_code(10201, duplicate), SendError::BatchRefused(duplicate.into()));
    }

    #[test]
    fn no_answer_is_unknown_but_no_stream_is_not() {
        let mapped = |kind| from_ack_error(&PublishError::new(kind));
        assert!(matches!(mapped(PublishErrorKind::TimedOut), SendError::Unknown(_)));
        assert!(matches!(mapped(PublishErrorKind::BrokenPipe), SendError::Unknown(_)));
        assert_eq!(mapped(PublishErrorKind::StreamNotFound), SendError::NoStream);
    }
}
