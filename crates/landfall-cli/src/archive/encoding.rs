//! Dead letters as compressed JSON lines, one object a line.

use landfall::ArchivedLetter;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::payload::{from_base64, to_base64};

/// A payload is a text if it is valid UTF-8, so that the file can be read and searched; otherwise base64.
#[derive(Serialize, Deserialize)]
struct Line {
    #[serde(flatten)]
    letter: ArchivedLetter,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    original_payload: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    original_payload_base64: Option<String>,
}

/// Returns the text and the base64 of bytes; one of them.
fn split(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(to_base64(bytes))),
    }
}

fn join(text: Option<String>, base64: Option<String>) -> Result<Option<Vec<u8>>, String> {
    match (text, base64) {
        (Some(text), None) => Ok(Some(text.into_bytes())),
        (None, Some(base64)) => from_base64(&base64).map(Some).map_err(|error| error.to_string()),
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err("a payload is given twice".to_owned()),
    }
}

/// Returns the letters as lines, compressed with zstd.
pub(super) fn encode(letters: &[ArchivedLetter]) -> Result<Vec<u8>, String> {
    let mut lines = Vec::new();
    for letter in letters {
        let (payload, payload_base64) = split(&letter.payload);
        let (original_payload, original_payload_base64) =
            letter.original_payload.as_deref().map(split).unwrap_or_default();
        let letter = letter.clone();
        let line = Line { letter, payload, payload_base64, original_payload, original_payload_base64 };
        serde_json::to_writer(&mut lines, &line).map_err(|error| error.to_string())?;
        lines.push(b'\n');
    }
    Ok(ruzstd::encoding::compress_to_vec(lines.as_slice(), ruzstd::encoding::CompressionLevel::Fastest))
}

/// Returns the letters of an object. The error is the end of a sentence about it.
pub(super) fn decode(object: &[u8]) -> Result<Vec<ArchivedLetter>, String> {
    let mut lines = Vec::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(object).map_err(|error| error.to_string())?;
    std::io::Read::read_to_end(&mut decoder, &mut lines).map_err(|error| error.to_string())?;
    let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mut letters = Vec::new();
    for (number, line) in (1..).zip(lines) {
        let wrong = |error: String| format!("line {number} is not a dead letter: {error}");
        let line: Line = serde_json::from_slice(line).map_err(|error| wrong(error.to_string()))?;
        let payload = join(line.payload, line.payload_base64).map_err(wrong)?;
        let original = join(line.original_payload, line.original_payload_base64).map_err(wrong)?;
        let payload = payload.ok_or_else(|| wrong("it has no payload".to_owned()))?;
        letters.push(ArchivedLetter {
            payload: payload.into(),
            original_payload: original.map(Into::into),
            ..line.letter
        });
    }
    Ok(letters)
}

/// Returns the SHA-256 in hexadecimal digits.
pub(super) fn sha256(content: &[u8]) -> String {
    digest(&SHA256, content).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use landfall::ArchivedAudit;

    use super::*;

    pub(crate) fn letter(id: i64, payload: &'static [u8]) -> ArchivedLetter {
        ArchivedLetter {
            id,
            message_id: "0190d2a7-6a4e-7bbb-8a6d-3c1f0a9b1c2d".into(),
            group: "billing".into(),
            topic: "orders".into(),
            key: Some("k\u{1f980}".into()),
            sequence: Some(i64::MAX),
            kind: "Placed".into(),
            mode: "effectively-once".into(),
            headers: "{\"a\": 12345678901234567890}".into(),
            created_at: 1,
            outbox_id: None,
            discarded: true,
            holds_key: true,
            error_code: "BAD".into(),
            error: "two\nlines".into(),
            attempts: 3,
            redrives: 0,
            original_partition: Some(4),
            original_offset: Some(i64::MIN),
            first_seen: 2,
            last_attempt: 3,
            done_at: Some(4),
            fingerprint: None,
            causes: None,
            redrive_id: None,
            payload: payload.into(),
            original_payload: Some(b"\xff\x00".as_slice().into()),
            history: vec![ArchivedAudit { id: 7, at: 8, actor: "a".into(), action: "park".into(), detail: "".into() }],
        }
    }

    #[test]
    fn every_field_survives_the_encoding() {
        let payloads: [&'static [u8]; 5] = [b"", b"{\"n\": 1.10}", b"a\nb\r\n", b"\x00", b"\xff"];
        let letters: Vec<_> = (1..).zip(payloads).map(|(id, payload)| letter(id, payload)).collect();
        let object = encode(&letters).unwrap();
        assert_eq!(decode(&object).unwrap(), letters);
        assert_eq!(encode(&letters).unwrap(), object, "the same letters are another object");
    }

    #[test]
    fn damaged_object_is_refused() {
        let object = encode(&[letter(1, b"x"), letter(2, b"y")]).unwrap();
        assert!(decode(&object[..object.len() - 9]).is_err());
        assert!(decode(b"not compressed").is_err());
        let empty = ruzstd::encoding::compress_to_vec(&b"{}\n"[..], ruzstd::encoding::CompressionLevel::Fastest);
        assert!(decode(&empty).unwrap_err().starts_with("line 1 is not a dead letter"));
    }
}
