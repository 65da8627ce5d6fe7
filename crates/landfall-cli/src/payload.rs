//! Rendering of payloads: as JSON if valid JSON, else as text, else as base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::output::escaped;

/// Either the field `payload` or the field `payload_base64`; flattened into a JSON object.
#[derive(Debug, Serialize)]
pub(crate) struct Payload {
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Readable>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Readable {
    Json(Box<RawValue>),
    Text(String),
}

impl Payload {
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return Self { payload: None, payload_base64: Some(STANDARD.encode(bytes)) };
        };
        // JSON strings escape line breaks, so a raw one only separates tokens. A space does the same and keeps the
        // object on one line. The rest stays as written: numbers keep their digits.
        let one_line = text.trim().replace(['\n', '\r'], " ");
        let readable = match RawValue::from_string(one_line) {
            Ok(json) => Readable::Json(json),
            Err(_) => Readable::Text(text.to_owned()),
        };
        Self { payload: Some(readable), payload_base64: None }
    }

    /// Returns the payload as one line for a terminal.
    pub(crate) fn to_line(&self) -> String {
        match (&self.payload, &self.payload_base64) {
            (Some(Readable::Json(json)), _) => escaped(json.get()).into_owned(),
            (Some(Readable::Text(text)), _) => escaped(text).into_owned(),
            (None, base64) => format!("base64:{}", base64.as_deref().unwrap_or_default()),
        }
    }
}

pub(crate) fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes `payload_base64`.
pub(crate) fn from_base64(text: &str) -> Result<Vec<u8>, base64::DecodeError> {
    STANDARD.decode(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Line {
        id: u8,
        #[serde(flatten)]
        payload: Payload,
    }

    #[test]
    fn payload_is_shown_as_json_text_or_base64() {
        for (bytes, line) in [
            (
                &b"{\"b\": 1.10,\n \"a\": 12345678901234567890123}"[..],
                r#"{"id":1,"payload":{"b": 1.10,  "a": 12345678901234567890123}}"#,
            ),
            (b"null", r#"{"id":1,"payload":null}"#),
            (b"", r#"{"id":1,"payload":""}"#),
            (b"hello \"you\"\n", r#"{"id":1,"payload":"hello \"you\"\n"}"#),
            (b"{\"half\":", r#"{"id":1,"payload":"{\"half\":"}"#),
            (b"\xff\x00", r#"{"id":1,"payload_base64":"/wA="}"#),
        ] {
            let shown = serde_json::to_string(&Line { id: 1, payload: Payload::from_bytes(bytes) }).unwrap();
            assert_eq!(shown, line);
            assert!(!shown.contains('\n'));
        }
    }
}
