//! The acknowledgement of a stream for one message.

use async_nats::{Message, StatusCode, jetstream};
use serde::Deserialize;

use crate::error::{SendError, from_server_code};

/// Why the outcome of a message is unknown.
pub(crate) const NO_ANSWER: &str = "the server did not answer in time";

#[derive(Deserialize)]
struct PublishAck {
    #[serde(default)]
    seq: u64,
    error: Option<jetstream::Error>,
}

/// The index of the message: the last token of the subject on which the acknowledgement arrived.
pub(crate) fn index(ack: &Message) -> Option<usize> {
    ack.subject.rsplit_once('.').and_then(|(_, index)| index.parse().ok())
}

/// The sequence of the message in the stream, or why it was not stored.
pub(crate) fn parse(ack: &Message) -> Result<u64, SendError> {
    if ack.status == Some(StatusCode::NO_RESPONDERS) {
        return Err(SendError::NoStream);
    }
    match serde_json::from_slice(&ack.payload) {
        Ok(PublishAck { error: Some(said), .. }) => Err(from_server_code(said.error_code().0, &said.to_string())),
        Ok(PublishAck { seq, error: None }) if seq > 0 => Ok(seq),
        // Without a sequence or an error it is unknown whether the message was stored.
        Ok(_) => Err(SendError::Unknown("the server's answer has no sequence".into())),
        Err(error) => Err(SendError::Unknown(format!("the server's answer cannot be read: {error}"))),
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
    fn an_acknowledgement_has_the_index_and_the_sequence() {
        let stored = message(None, r#"{"stream":"orders","seq":42,"duplicate":true}"#);
        assert_eq!((index(&stored), parse(&stored)), (Some(17), Ok(42)));
    }

    #[test]
    fn any_other_answer_is_not_accepted() {
        assert_eq!(parse(&message(Some(StatusCode::NO_RESPONDERS), "")), Err(SendError::NoStream));
        assert!(matches!(parse(&message(None, "")), Err(SendError::Unknown(_))));
        assert!(matches!(parse(&message(None, r#"{"stream":"orders"}"#)), Err(SendError::Unknown(_))));
        let full = r#"{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"},"seq":0}"#;
        let Err(SendError::NotStored(Outcome::Refused(refusal))) = parse(&message(None, full)) else {
            panic!("not a refusal")
        };
        assert_eq!(refusal.code, ErrorCode::STORAGE_FULL);
    }
}
