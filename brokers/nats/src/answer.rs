//! What a stream answers to one message.

use async_nats::{Message, StatusCode, jetstream};
use serde::Deserialize;

use crate::error::{Trouble, of_server};

/// Why nobody knows what became of a message.
pub(crate) const NO_ANSWER: &str = "the server did not answer in time";

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    seq: u64,
    error: Option<jetstream::Error>,
}

/// The number at the end of the subject that an answer came to.
pub(crate) fn number(answer: &Message) -> Option<usize> {
    answer.subject.rsplit_once('.').and_then(|(_, number)| number.parse().ok())
}

/// Where the message stands in the stream, or why it does not.
pub(crate) fn read(answer: &Message) -> Result<u64, Trouble> {
    if answer.status == Some(StatusCode::NO_RESPONDERS) {
        return Err(Trouble::NobodyListens);
    }
    match serde_json::from_slice(&answer.payload) {
        Ok(Answer { error: Some(said), .. }) => Err(of_server(said.error_code().0, &said.to_string())),
        Ok(Answer { seq, error: None }) if seq > 0 => Ok(seq),
        // An answer that nobody understands is no answer.
        Ok(_) => Err(Trouble::Unknown("the server's answer names no place".into())),
        Err(error) => Err(Trouble::Unknown(format!("the server's answer cannot be read: {error}"))),
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
    fn an_answer_tells_where_the_message_stands() {
        let taken = message(None, r#"{"stream":"orders","seq":42,"duplicate":true}"#);
        assert_eq!((number(&taken), read(&taken)), (Some(17), Ok(42)));
    }

    #[test]
    fn whatever_else_it_says_is_not_taken_for_accepted() {
        assert_eq!(read(&message(Some(StatusCode::NO_RESPONDERS), "")), Err(Trouble::NobodyListens));
        assert!(matches!(read(&message(None, "")), Err(Trouble::Unknown(_))));
        assert!(matches!(read(&message(None, r#"{"stream":"orders"}"#)), Err(Trouble::Unknown(_))));
        let full = r#"{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"},"stream":"orders","seq":0}"#;
        let Err(Trouble::Not(Outcome::Refused(refusal))) = read(&message(None, full)) else { panic!("it was refused") };
        assert_eq!(refusal.code, ErrorCode::STORAGE_FULL);
    }
}
