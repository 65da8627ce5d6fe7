//! Builds the HTTP request of a message: a signed CloudEvents event in binary mode, with its id as `Idempotency-Key`.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Uri};
use landfall::{ErrorCode, Failure, Message, Timestamp, wire};

use super::signature::{self, SigningKey};

/// Headers that a message must not set: those of the HTTP connection, the target, and Landfall's own.
const RESERVED: [&str; 13] = [
    "connection",
    "content-length",
    "content-encoding",
    "expect",
    "host",
    "idempotency-key",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "cookie",
];
const RESERVED_PREFIXES: [&str; 4] = ["ce-", "landfall-", "proxy-", "webhook-"];

/// Builds the request. `Err` (park) if a header of the message is not valid in HTTP.
pub(super) fn build(
    message: &Message,
    url: &Uri,
    keys: &[SigningKey],
    now: Timestamp,
) -> Result<Request<Full<Bytes>>, Failure> {
    let mut request = Request::new(Full::new(message.payload.clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = url.clone();
    *request.headers_mut() = headers(message, keys, now.as_millis().div_euclid(1000))?;
    Ok(request)
}

fn headers(message: &Message, keys: &[SigningKey], seconds: i64) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("landfall/", env!("CARGO_PKG_VERSION"))));
    for (name, value) in message.headers.iter() {
        let name = name.to_ascii_lowercase();
        if !RESERVED.contains(&name.as_str()) && !RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            put(&mut headers, &name, value)?;
        }
    }
    if !headers.contains_key(CONTENT_TYPE) {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type(&message.payload)));
    }
    let source = format!("landfall/{}", message.topic);
    for (name, value) in wire::headers(message, &source) {
        if let Some(attribute) = name.strip_prefix("ce_") {
            put(&mut headers, &format!("ce-{attribute}"), &percent_encoded(&value))?;
        }
    }
    let id = message.id.to_string();
    put(&mut headers, "idempotency-key", &id)?;
    put(&mut headers, "webhook-id", &id)?;
    put(&mut headers, "webhook-timestamp", &seconds.to_string())?;
    if !keys.is_empty() {
        put(&mut headers, "webhook-signature", &signature::header_value(keys, &id, seconds, &message.payload))?;
    }
    Ok(headers)
}

fn put(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), Failure> {
    let invalid = || Failure::park(ErrorCode::VALIDATION, format_args!("the header {name:?} is not valid in HTTP"));
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
    headers.insert(name, HeaderValue::from_bytes(value.as_bytes()).map_err(|_| invalid())?);
    Ok(())
}

/// Encodes as CloudEvents requires: percent-encodes everything but visible ASCII, and `"` and `%`.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            0x21..=0x7e if byte != b'"' && byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Returns the content type of a message without a `content-type` header.
fn content_type(payload: &[u8]) -> &'static str {
    match serde_json::from_slice::<serde::de::IgnoredAny>(payload) {
        Ok(_) => "application/json",
        Err(_) => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use landfall::{Key, Kind, TopicName};

    use super::*;

    fn message() -> Message {
        let mut message = Message::new(TopicName::new("orders").unwrap(), r#"{"total":1}"#)
            .with_key(Key::new("küche 7").unwrap())
            .with_kind(Kind::new("OrderPlaced").unwrap())
            .with_sequence(3);
        message.time = Timestamp::from_millis(1_700_000_000_000);
        message
    }

    fn shown(message: &Message, keys: &[SigningKey]) -> Vec<(String, String)> {
        let request =
            build(message, &"https://example.com/in".parse().unwrap(), keys, Timestamp::from_millis(5_999)).unwrap();
        assert_eq!((request.method(), request.uri().path()), (&Method::POST, "/in"));
        let text = |value: &HeaderValue| String::from_utf8(value.as_bytes().to_vec()).unwrap();
        request.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect()
    }

    #[test]
    fn request_is_a_binary_cloudevent_with_idempotency_key() {
        let message = message();
        let (headers, id) = (shown(&message, &[]), message.id.to_string());
        for (name, value) in [
            ("ce-specversion", "1.0"),
            ("ce-id", id.as_str()),
            ("ce-type", "OrderPlaced"),
            ("ce-source", "landfall/orders"),
            ("ce-subject", "k%C3%BCche%207"),
            ("ce-partitionkey", "k%C3%BCche%207"),
            ("ce-sequence", "3"),
            ("content-type", "application/json"),
            ("idempotency-key", id.as_str()),
            ("webhook-id", id.as_str()),
            ("webhook-timestamp", "5"),
        ] {
            assert!(headers.contains(&(name.into(), value.into())), "{name}: {value} is missing in {headers:?}");
        }
        assert!(!headers.iter().any(|(name, _)| name == "webhook-signature"), "no key to sign with");
        let key = SigningKey::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature = signature::header_value(std::slice::from_ref(&key), &id, 5, &message.payload);
        assert!(shown(&message, &[key]).contains(&("webhook-signature".into(), signature)));
    }

    #[test]
    fn message_headers_are_sent_except_reserved_ones() {
        let mut message = message();
        for (name, value) in [
            ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            ("tenant", "größe"),
            ("content-type", "text/plain"),
            ("Host", "evil.example"),
            ("Transfer-Encoding", "chunked"),
            ("Content-Length", "7"),
            ("Idempotency-Key", "forged"),
            ("webhook-signature", "v1,forged"),
        ] {
            message.headers.insert(name, value).unwrap();
        }
        let headers = shown(&message, &[]);
        let has = |name: &str, value: &str| headers.contains(&(name.into(), value.into()));
        assert!(has("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
        assert!(has("tenant", "größe") && has("content-type", "text/plain"));
        assert!(!headers.iter().any(|(_, value)| value.contains("forged") || value.contains("evil")), "{headers:?}");
        assert!(
            !headers.iter().any(|(name, _)| ["host", "transfer-encoding", "content-length"].contains(&name.as_str()))
        );
    }

    #[test]
    fn non_json_payload_is_an_octet_stream() {
        assert_eq!(content_type(b"[1, 2]"), "application/json");
        assert_eq!(content_type(b"\xff"), "application/octet-stream");
        assert_eq!(content_type(b""), "application/octet-stream");
    }
}
