//! The JSON of a half message, the same over HTTP and from a topic.

use std::time::Duration;

use bytes::Bytes;
use landfall::{CheckBack, HalfMessage, HalfVerdict, Headers, Key, Kind, Message, MessageId, TopicName};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::remote_target;
use crate::http::sender_id;
use crate::payload::from_base64;

/// The longest immunity period.
const MAX_CHECK_AFTER_S: u64 = 30 * 24 * 3600;

/// The raw fields. Parsing them one by one lets every error name its field.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fields<'a> {
    #[serde(borrow, default)]
    action: Option<&'a RawValue>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
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
    #[serde(borrow, default)]
    business_type: Option<&'a RawValue>,
    #[serde(borrow, default)]
    business_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    check_back: Option<&'a RawValue>,
    #[serde(borrow, default)]
    check_after_s: Option<&'a RawValue>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// What a message of the topic asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Prepare,
    Decide(MessageId, HalfVerdict),
}

impl<'a> Fields<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, String> {
        let wrong = |why: &dyn std::fmt::Display| format!("the body is not a half message: {why}");
        // serde would also accept an array with the values in field order.
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err(wrong(&"it must be a JSON object"));
        }
        serde_json::from_slice(body).map_err(|error| wrong(&error))
    }

    /// The field `id` as the sender gave it.
    pub(crate) fn given_id(&self) -> Result<Option<String>, String> {
        optional("id", self.id)
    }

    /// Refuses the field `action`, which belongs to the topic.
    pub(crate) fn without_action(self) -> Result<Self, String> {
        match self.action {
            None => Ok(self),
            Some(_) => Err("the field action is unknown here; the route says what to do".into()),
        }
    }

    /// Reads `action`, and for a decision the id or the business type and id.
    pub(crate) fn action(&self) -> Result<Action, String> {
        let verdict = match required::<String>("action", self.action)?.as_str() {
            "prepare" => return Ok(Action::Prepare),
            "commit" => HalfVerdict::Committed,
            "rollback" => HalfVerdict::RolledBack,
            other => return Err(format!("the field action is {other:?}, not prepare, commit or rollback")),
        };
        Ok(Action::Decide(self.id()?, verdict))
    }

    /// The id that the sender gave, or else the one derived from the business type and id.
    fn id(&self) -> Result<MessageId, String> {
        if let Some(text) = self.given_id()? {
            return sender_id(&text).map_err(|why| format!("the field id is invalid: it {why}"));
        }
        let business_type: String = required("business_type", self.business_type)?;
        let business_id: String = required("business_id", self.business_id)?;
        Ok(MessageId::from_business(&business_type, &business_id))
    }

    /// Reads the whole half message. `immunity` is the default of `check_after_s`.
    pub(crate) fn half_message(&self, immunity: Duration) -> Result<HalfMessage, String> {
        let given = Given {
            topic: required("topic", self.topic)?,
            payload: self.payload()?,
            key: optional("key", self.key)?,
            kind: optional("kind", self.kind)?,
            sequence: self.sequence.map(sequence).transpose()?,
            headers: optional("headers", self.headers)?.unwrap_or_default(),
            mode: optional("mode", self.mode)?,
            business_type: required("business_type", self.business_type)?,
            business_id: required("business_id", self.business_id)?,
            check_back: required("check_back", self.check_back)?,
            check_after_s: self.check_after_s()?,
        };
        given.half_message(self.id()?, immunity)
    }

    /// Reads a whole number of seconds. `7.0` is one too: JSON does not distinguish them.
    fn check_after_s(&self) -> Result<Option<u64>, String> {
        let Some(seconds) = optional::<f64>("check_after_s", self.check_after_s)? else { return Ok(None) };
        if seconds.fract() != 0.0 || !(0.0..=u64::MAX as f64).contains(&seconds) {
            return Err(wrong_immunity());
        }
        Ok(Some(seconds as u64))
    }

    /// Returns the payload; JSON is kept byte for byte.
    fn payload(&self) -> Result<Bytes, String> {
        match (self.payload, optional::<String>("payload_base64", self.payload_base64)?) {
            (Some(json), None) => Ok(Bytes::copy_from_slice(json.get().as_bytes())),
            (None, Some(base64)) => from_base64(&base64)
                .map(Bytes::from)
                .map_err(|error| format!("the field payload_base64 is not base64: {error}")),
            (None, None) => Err("the field payload is missing, and so is payload_base64".into()),
            (Some(_), Some(_)) => Err("give payload or payload_base64, not both".into()),
        }
    }
}

/// The values of a half message as a sender gave them, over HTTP, over gRPC or on the topic.
pub(crate) struct Given {
    pub(crate) topic: String,
    pub(crate) key: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) sequence: Option<i64>,
    pub(crate) headers: Headers,
    pub(crate) mode: Option<String>,
    pub(crate) payload: Bytes,
    pub(crate) business_type: String,
    pub(crate) business_id: String,
    pub(crate) check_back: CheckBack,
    pub(crate) check_after_s: Option<u64>,
}

impl Given {
    /// Validates the values. `immunity` is the default of `check_after_s`. The error is for the sender.
    pub(crate) fn half_message(self, id: MessageId, immunity: Duration) -> Result<HalfMessage, String> {
        let text = |error: landfall::Error| error.to_string();
        let topic = TopicName::new(self.topic).map_err(text)?;
        let mut message = Message::new(topic, self.payload).with_id(id);
        if let Some(key) = self.key {
            message.key = Some(Key::new(key).map_err(text)?);
        }
        if let Some(kind) = self.kind {
            message.kind = Kind::new(kind).map_err(text)?;
        }
        message.sequence = self.sequence.map(counted).transpose()?;
        message.headers = self.headers;
        if let Some(mode) = self.mode {
            message.mode = mode.parse().map_err(text)?;
        }
        let check_after = match self.check_after_s {
            None => immunity,
            Some(seconds) if seconds <= MAX_CHECK_AFTER_S => Duration::from_secs(seconds),
            Some(_) => return Err(wrong_immunity()),
        };
        check(&self.check_back)?;
        let Self { business_type, business_id, check_back, .. } = self;
        let half = HalfMessage { message, business_type, business_id, check_back, check_after };
        landfall::half::check(&half).map_err(text)?;
        Ok(half)
    }
}

fn wrong_immunity() -> String {
    format!("the field check_after_s is invalid: it is no whole number up to {MAX_CHECK_AFTER_S}")
}

/// Refuses targets that can never be asked.
fn check(check_back: &CheckBack) -> Result<(), String> {
    if let Some(url) = &check_back.http {
        remote_target::check(url).map_err(|why| format!("the field check_back.http {why}"))?;
    }
    match &check_back.grpc {
        None => Ok(()),
        #[cfg(feature = "grpc")]
        Some(url) => super::grpc_target::check(url).map_err(|why| format!("the field check_back.grpc {why}")),
        // Another coordinator on the same database may be able to.
        #[cfg(not(feature = "grpc"))]
        Some(_) if check_back.http.is_some() || check_back.database.is_some() => Ok(()),
        #[cfg(not(feature = "grpc"))]
        Some(_) => Err("this build cannot ask over gRPC; give check_back.http or check_back.database".into()),
    }
}

/// Parses a whole number from 0. `7.0` is one too: JSON does not distinguish them, and some encoders write it.
pub(crate) fn sequence(raw: &RawValue) -> Result<i64, String> {
    let is_whole = |number: &f64| number.fract() == 0.0 && number.abs() < 2_f64.powi(63);
    let decimal = || serde_json::from_str::<f64>(raw.get()).ok().filter(is_whole);
    let number = required("sequence", Some(raw)).or_else(|why| decimal().map(|number| number as i64).ok_or(why))?;
    counted(number)
}

fn counted(sequence: i64) -> Result<i64, String> {
    if sequence < 0 {
        return Err("the field sequence is invalid: it is negative, and sequences count from 0".into());
    }
    Ok(sequence)
}

fn required<T: DeserializeOwned>(name: &str, raw: Option<&RawValue>) -> Result<T, String> {
    let raw = raw.ok_or_else(|| format!("the field {name} is missing"))?;
    serde_json::from_str(raw.get()).map_err(|error| format!("the field {name} is invalid: {error}"))
}

fn optional<T: DeserializeOwned>(name: &str, raw: Option<&RawValue>) -> Result<Option<T>, String> {
    raw.map(|raw| required(name, Some(raw))).transpose()
}

#[cfg(test)]
mod tests {
    use landfall::Mode;

    use super::*;

    fn half(body: &str) -> Result<HalfMessage, String> {
        Fields::parse(body.as_bytes())?.half_message(Duration::from_secs(30))
    }

    #[test]
    fn every_field_is_parsed_and_payload_bytes_are_kept() {
        let body = r#"{"topic":"orders","key":"k","kind":"Placed","sequence":7.0,"headers":{"tenant":"a"},
            "mode":"at-least-once","payload": {"b":1.10},"business_type":"order","business_id":"7",
            "check_back":{"http":"http://a/","database":"shop"},"check_after_s":5}"#;
        let half = half(body).unwrap();
        assert_eq!(half.message.id, MessageId::from_business("order", "7"));
        assert_eq!((half.message.kind.as_str(), &half.message.payload[..]), ("Placed", &br#"{"b":1.10}"#[..]));
        assert_eq!(half.check_back.database.as_deref(), Some("shop"));
        assert_eq!(half.check_after, Duration::from_secs(5));
        assert_eq!((half.message.sequence, half.message.mode), (Some(7), Mode::AtLeastOnce));
        assert_eq!(half.message.headers.get("tenant"), Some("a"));
    }

    #[test]
    fn parse_error_names_the_field() {
        let with =
            |rest: &str| format!(r#"{{"topic":"t","payload":1,"business_type":"order","business_id":"7",{rest}}}"#);
        for (body, word) in [
            ("[]".to_owned(), "must be a JSON object"),
            (r#"{"payload":1}"#.to_owned(), "the field topic is missing"),
            (with(r#""x":1"#), "unknown field `x`"),
            (with(r#""key":"k""#), "the field check_back is missing"),
            (with(r#""check_back":{}"#), "names no target"),
            (with(r#""check_back":{"htp":"http://a"}"#), "the field check_back is invalid"),
            (with(r#""check_back":{"http":"nonsense"}"#), "check_back.http must begin with"),
            #[cfg(not(feature = "grpc"))]
            (with(r#""check_back":{"grpc":"http://a"}"#), "cannot ask over gRPC"),
            #[cfg(feature = "grpc")]
            (with(r#""check_back":{"grpc":"http://a/path"}"#), "check_back.grpc must have no path"),
            (with(r#""check_back":{"http":"http://a"},"check_after_s":-1"#), "check_after_s is invalid"),
            (
                with(r#""check_back":{"http":"http://a"},"sequence":-1"#),
                "the field sequence is invalid: it is negative",
            ),
            (with(r#""check_back":{"http":"http://a"},"headers":{"ce_id":"x"}"#), "the field headers is invalid"),
            (with(r#""check_back":{"http":"http://a"},"mode":"twice""#), "mode "),
            (with(r#""check_back":{"http":"http://a"},"id":"""#), "the field id is invalid: it is empty"),
        ] {
            let refusal = half(&body).unwrap_err();
            assert!(refusal.contains(word), "{body}: {refusal}");
        }
    }

    #[test]
    fn decision_names_the_id_or_the_business() {
        let action = |body: &str| Fields::parse(body.as_bytes()).unwrap().action();
        let id = MessageId::from_business("order", "7");
        let by_business = r#"{"action":"commit","business_type":"order","business_id":"7"}"#;
        assert_eq!(action(by_business), Ok(Action::Decide(id, HalfVerdict::Committed)));
        let by_id = format!(r#"{{"action":"rollback","id":"{id}"}}"#);
        assert_eq!(action(&by_id), Ok(Action::Decide(id, HalfVerdict::RolledBack)));
        assert!(action(r#"{"action":"commit"}"#).is_err() && action(r#"{"action":"drop","id":"a"}"#).is_err());
    }
}
