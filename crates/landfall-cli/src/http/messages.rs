//! `POST /v1/messages`: enqueues one message, for senders without a database of their own.
//!
//! The response follows the commit, which concurrent requests share ([`group_commit`](super::group_commit)). An invalid
//! message is refused before anything is written; the error names the field. With an id of the sender, a retry is the
//! same message ([`idempotency`]).

use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use bytes::Bytes;
use landfall::{Appended, Key, Kind, Limits, Message, MessageId, TopicName};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::problem::Problem;
use super::{Shared, body, idempotency};
use crate::check_back::request::sequence;
use crate::payload::from_base64;

/// The raw fields. Parsing them one by one lets every error name its field.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    topic: Option<&'a RawValue>,
    #[serde(borrow, default)]
    key: Option<&'a RawValue>,
    #[serde(borrow, default)]
    kind: Option<&'a RawValue>,
    #[serde(borrow, default)]
    sequence: Option<&'a RawValue>,
    #[serde(borrow, default)]
    headers: Option<&'a RawValue>,
    /// `null` is a valid payload.
    #[serde(borrow, default, deserialize_with = "present")]
    payload: Option<&'a RawValue>,
    #[serde(borrow, default)]
    payload_base64: Option<&'a RawValue>,
    #[serde(borrow, default)]
    mode: Option<&'a RawValue>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

#[derive(Debug, Serialize)]
pub(super) struct Accepted {
    id: MessageId,
}

pub(super) async fn post(
    axum::extract::State(state): Shared,
    request: Request,
) -> Result<(StatusCode, Json<Accepted>), Problem> {
    let (head, body) = request.into_parts();
    let body = body::read(body, body_limit(&state.limits), state.request_timeout).await?;
    let (mut message, id) = parse(&body)?;
    let id = idempotency::message_id(id.as_deref(), &head.headers)?;
    if message.payload.len() > state.limits.payload_bytes {
        let text = state.limits.check(&message).err().map_or_else(String::new, |error| error.to_string());
        return Err(Problem::too_large(text));
    }
    message.id = id.unwrap_or(message.id);
    let accepted = Accepted { id: message.id };
    // One without an id of its sender cannot have been sent before, and costs no lookup.
    let fingerprint = id.map(|_| idempotency::fingerprint(&message));
    let appended = state.appends.append(message, fingerprint).await?;
    match appended {
        Appended::Fresh | Appended::Repeated => Ok((StatusCode::ACCEPTED, Json(accepted))),
        Appended::Conflict => Err(Problem::different_message(accepted.id)),
    }
}

/// Returns the body limit: the largest payload in base64, and 64 KiB for the other fields.
pub(super) fn body_limit(limits: &Limits) -> usize {
    limits.payload_bytes.div_ceil(3).saturating_mul(4).saturating_add(64 * 1024)
}

/// Returns the message, and the id that the sender gave it.
fn parse(body: &[u8]) -> Result<(Message, Option<String>), Problem> {
    let not_a_message = |why: &dyn std::fmt::Display| Problem::invalid(format!("the body is not a message: {why}"));
    // serde would also accept an array with the values in field order.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(not_a_message(&"it must be a JSON object with at least topic and payload"));
    }
    let fields: Fields<'_> = serde_json::from_slice(body).map_err(|error| not_a_message(&error))?;
    let topic: String = required("topic", fields.topic)?;
    let mut message = Message::new(TopicName::new(topic)?, payload(&fields)?);
    if let Some(key) = optional::<String>("key", fields.key)? {
        message.key = Some(Key::new(key)?);
    }
    if let Some(kind) = optional::<String>("kind", fields.kind)? {
        message.kind = Kind::new(kind)?;
    }
    message.sequence = fields.sequence.map(sequence).transpose().map_err(Problem::invalid)?;
    message.headers = optional("headers", fields.headers)?.unwrap_or_default();
    if let Some(mode) = optional::<String>("mode", fields.mode)? {
        message.mode = mode.parse()?;
    }
    Ok((message, optional("id", fields.id)?))
}

/// Returns the payload; JSON is kept byte for byte.
fn payload(fields: &Fields<'_>) -> Result<Bytes, Problem> {
    match (fields.payload, optional::<String>("payload_base64", fields.payload_base64)?) {
        (Some(json), None) => Ok(Bytes::copy_from_slice(json.get().as_bytes())),
        (None, Some(base64)) => from_base64(&base64)
            .map(Bytes::from)
            .map_err(|error| Problem::invalid(format!("the field payload_base64 is not base64: {error}"))),
        (None, None) => Err(Problem::invalid("the field payload is missing, and so is payload_base64")),
        (Some(_), Some(_)) => Err(Problem::invalid("give payload or payload_base64, not both")),
    }
}

fn required<T: DeserializeOwned>(name: &str, raw: Option<&RawValue>) -> Result<T, Problem> {
    let raw = raw.ok_or_else(|| Problem::invalid(format!("the field {name} is missing")))?;
    serde_json::from_str(raw.get()).map_err(|error| Problem::invalid(format!("the field {name} is invalid: {error}")))
}

fn optional<T: DeserializeOwned>(name: &str, raw: Option<&RawValue>) -> Result<Option<T>, Problem> {
    raw.map(|raw| required(name, Some(raw))).transpose()
}

#[cfg(test)]
mod tests {
    use landfall::Mode;

    use super::*;

    fn refusal(body: &str) -> String {
        format!("{:?}", parse(body.as_bytes()).unwrap_err())
    }

    #[test]
    fn every_field_is_parsed_and_payload_bytes_are_kept() {
        let body = r#"{"id":"order-7","topic":"orders","key":"k","kind":"Placed","sequence":7,"headers":{"tenant":"a"},
            "payload": {"b":1.10,"a":12345678901234567890123},"mode":"at-least-once"}"#;
        let (message, id) = parse(body.as_bytes()).unwrap();
        assert_eq!(id.as_deref(), Some("order-7"));
        assert_eq!(message.topic.as_str(), "orders");
        assert_eq!(message.key.unwrap().as_str(), "k");
        assert_eq!((message.kind.as_str(), message.sequence, message.mode), ("Placed", Some(7), Mode::AtLeastOnce));
        assert_eq!(message.headers.get("tenant"), Some("a"));
        assert_eq!(message.payload, r#"{"b":1.10,"a":12345678901234567890123}"#);
    }

    #[test]
    fn null_is_a_valid_payload_and_means_no_key() {
        let (message, _) = parse(br#"{"topic":"t","key":null,"payload":null}"#).unwrap();
        assert_eq!((message.key, &message.payload[..]), (None, &b"null"[..]));
        assert_eq!(parse(br#"{"topic":"t","payload_base64":"/wA="}"#).unwrap().0.payload, &b"\xff\x00"[..]);
    }

    #[test]
    fn sequence_is_a_whole_number() {
        let parsed = |number: &str| parse(format!(r#"{{"topic":"t","payload":1,"sequence":{number}}}"#).as_bytes());
        for (text, number) in
            [("9007199254740993", 9_007_199_254_740_993), ("9223372036854775807", i64::MAX), ("7.0", 7), ("7e2", 700)]
        {
            assert_eq!(parsed(text).unwrap().0.sequence, Some(number), "{text}");
        }
        for text in ["7.5", "-1.0", "9223372036854775808", "1e400", "NaN", "true"] {
            assert!(parsed(text).is_err(), "{text} was accepted");
        }
    }

    #[test]
    fn parse_error_names_the_field() {
        for (body, word) in [
            (r#"{"topic":"t","payload":1,"topik":1}"#, "unknown field `topik`"),
            (r#"{"topic":"t","topic":"t","payload":1}"#, "duplicate field `topic`"),
            (r#"{"topic":5,"payload":1}"#, "the field topic is invalid"),
            (r#"{"topic":null,"payload":1}"#, "the field topic is invalid"),
            (r#"{"payload":1}"#, "the field topic is missing"),
            (r#"{"topic":"t"}"#, "the field payload is missing"),
            (r#"{"topic":"t","payload":1,"payload_base64":"AA=="}"#, "not both"),
            (r#"{"topic":"t","payload_base64":"?"}"#, "payload_base64 is not base64"),
            (r#"{"topic":"t","payload":1,"sequence":"x"}"#, "the field sequence is invalid"),
            (r#"{"topic":"t","payload":1,"sequence":-1}"#, "the field sequence is invalid: it is negative"),
            (r#"{"topic":"t","payload":1,"headers":{"a":"x\r\ny"}}"#, "header a contains"),
            (r#"{"topic":"t","payload":1,"headers":{"a":"x","a":"y"}}"#, "is repeated"),
            (r#"{"topic":"t","payload":1,"mode":"twice"}"#, "mode "),
            (r#"{"topic":"t","payload":1,"id":7}"#, "the field id is invalid"),
            (r#"{"topic":"a b","payload":1}"#, "topic "),
            (r#"{"topic":"t","payload":"#, "the body is not a message"),
            (r#"["t",null,null,null,null,1,null,null]"#, "must be a JSON object"),
            ("", "must be a JSON object"),
        ] {
            let refusal = refusal(body);
            assert!(refusal.contains(word), "{body}: {refusal}");
        }
    }
}
