//! Parses a stream's answer to one published message.

use async_nats::{Message, StatusCode, jetstream};
use serde::Deserialize;

use crate::error::{SendError, from_server_code};

/// Reason of an unknown outcome after a timeout.
pub(crate) const NO_ANSWER: &str = "the server did not answer in time";

#[derive(Deserialize)]
struct PublishAck {
    #[serde(default)]
    seq: u64,
    error: Option<jetstream::Error>,
}

/// The message number at the end of the answer's subject.
pub(crate) fn number(answer: &Message) -> Option<usize> {
    answer.subject.rsplit_once('.').and_then(|(_, number)| number.parse().ok())
}

/// Returns the sequence of the message in the stream, or why it was not stored.
pub(crate) fn read(answer: &Message) -> Result<u64, SendError> {
    if answer.status == Some(StatusCode::NO_RESPONDERS) {
        return Err(SendError::NoStream);
    }
    match serde_json::from_slice(&answer.payload) {
        Ok(PublishAck { error: Some(error), .. }) => Err(from_server_code(error.error_code().0, &error.to_string())),
        Ok(PublishAck { seq, error: None }) if seq > 0 => Ok(seq),
        // An answer that cannot be parsed counts as no answer.
        Ok(_) => Err(SendError::Unknown("the server's answer has no sequence".into())),
        Err(error) => Err(SendError::Unknown(format!("the server's answer cannot be parsed: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use landfall_core::{ErrorCode, Outcome};

    use super::*;

    fn message(status: Option<StatusCode>, payload: &'static str) -> Message {
        let subject = "_INBOX.abc.17".into();
        Message { subject, reply: None, payload: payload.into(), headers: None, status, description: None, length: 0 }
    }

    #[test]
    fn answer_has_the_stream_sequence() {
        let stored = message(None, r#"{"stream":"orders","seq":42,"duplicate":true}"#);
        assert_eq!((number(&stored), read(&stored)), (Some(17), Ok(42)));
    }

    #[test]
    fn other_answers_are_not_accepted() {
        assert_eq!(read(&message(Some(StatusCode::NO_RESPONDERS), "")), Err(SendError::NoStream));
        assert!(matches!(read(&message(None, "")), Err(SendError::Unknown(_))));
        assert!(matches!(read(&message(None, r#"{"stream":"orders"}"#)), Err(SendError::Unknown(_))));
        let full = r#"{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"},"seq":0}"#;
        let Err(SendError::NotStored(Outcome::Refused(refusal))) = read(&message(None, full)) else {
            panic!("expected a refusal")
        };
        assert_eq!(refusal.code, ErrorCode::STORAGE_FULL);
    }
}
