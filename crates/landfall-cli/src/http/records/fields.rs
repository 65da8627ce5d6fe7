//! The JSON bodies. Parsing the fields one by one lets every error name its field.

use std::time::Duration;

use landfall::idempotency::{Claim, Epoch, Fingerprint, FingerprintBuilder, Identity, OnUnknown, Scope, Token};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::claim::refusal;
use crate::http::problem::Problem;

/// The raw fields of every route here.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fields<'a> {
    #[serde(borrow, default)]
    scope: Option<&'a RawValue>,
    #[serde(borrow, default)]
    business_type: Option<&'a RawValue>,
    #[serde(borrow, default)]
    business_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    key: Option<&'a RawValue>,
    #[serde(borrow, default)]
    token: Option<&'a RawValue>,
    #[serde(borrow, default)]
    fingerprint: Option<&'a RawValue>,
    #[serde(borrow, default)]
    lease_s: Option<&'a RawValue>,
    #[serde(borrow, default)]
    ttl_s: Option<&'a RawValue>,
    #[serde(borrow, default)]
    on_unknown: Option<&'a RawValue>,
    #[serde(borrow, default)]
    epoch: Option<&'a RawValue>,
    /// `null` is a valid response.
    #[serde(borrow, default, deserialize_with = "present")]
    response: Option<&'a RawValue>,
    #[serde(borrow, default)]
    outcome: Option<&'a RawValue>,
    #[serde(borrow, default)]
    reason: Option<&'a RawValue>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// The longest fingerprint, business id or token, in characters.
const MAX_CHARACTERS: usize = 255;
/// The longest reason, in characters.
const MAX_REASON_CHARACTERS: usize = 500;
/// The longest lease: longer work renews it.
const MAX_LEASE_S: i64 = 600;
/// The longest life of a token.
const MAX_TTL_S: i64 = 30 * 24 * 3600;

/// How an attempt ended that is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Released {
    NothingDone,
    Unknown,
}

impl<'a> Fields<'a> {
    /// Parses a body that has no other fields than `known`.
    pub(super) fn parse(body: &'a [u8], known: &[&str]) -> Result<Self, Problem> {
        let wrong = |why: &dyn std::fmt::Display| Problem::invalid(format!("the body is not valid: {why}"));
        // serde would also accept an array with the values in field order.
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err(wrong(&"it must be a JSON object"));
        }
        let fields: Self = serde_json::from_slice(body).map_err(|error| wrong(&error))?;
        match fields.given().into_iter().find(|name| !known.contains(name)) {
            Some(name) => Err(Problem::invalid(format!("the field {name} is unknown here"))),
            None => Ok(fields),
        }
    }

    fn given(&self) -> Vec<&'static str> {
        let all = [
            ("scope", self.scope),
            ("business_type", self.business_type),
            ("business_id", self.business_id),
            ("key", self.key),
            ("token", self.token),
            ("fingerprint", self.fingerprint),
            ("lease_s", self.lease_s),
            ("ttl_s", self.ttl_s),
            ("on_unknown", self.on_unknown),
            ("epoch", self.epoch),
            ("response", self.response),
            ("outcome", self.outcome),
            ("reason", self.reason),
        ];
        all.into_iter().filter(|(_, raw)| raw.is_some()).map(|(name, _)| name).collect()
    }

    /// Returns the identity of a key, or of a one-time token. A token is bound to its business and to no scope.
    pub(super) fn identity(&self) -> Result<Identity, Problem> {
        if self.token.is_some() {
            if self.key.is_some() || self.scope.is_some() {
                return Err(Problem::invalid("send scope and key, or business_id and token, not both"));
            }
            return self.token_identity();
        }
        if self.business_id.is_some() {
            return Err(Problem::invalid("the field business_id belongs to a token, which is missing"));
        }
        let scope: Scope = required::<String>("scope", self.scope)?.parse()?;
        let business_type: String = required("business_type", self.business_type)?;
        Ok(Identity::new(scope, business_type, required::<String>("key", self.key)?)?)
    }

    pub(super) fn business(&self) -> Result<(String, String), Problem> {
        let business_id: String = text("business_id", self.business_id, MAX_CHARACTERS)?;
        Ok((required("business_type", self.business_type)?, business_id))
    }

    pub(super) fn token_identity(&self) -> Result<Identity, Problem> {
        let (business_type, business_id) = self.business()?;
        let token: String = text("token", self.token, MAX_CHARACTERS)?;
        // A token of another form was never issued.
        let token: Token = token.parse().map_err(|_| refusal(Claim::NotIssued))?;
        Ok(token.identity(Scope::Global, &business_type, &business_id)?)
    }

    /// A claim without a fingerprint equals every other without one.
    pub(super) fn fingerprint(&self) -> Result<Fingerprint, Problem> {
        let given = self.fingerprint.map(|raw| text("fingerprint", Some(raw), MAX_CHARACTERS)).transpose()?;
        Ok(FingerprintBuilder::new("client").optional(given).finish())
    }

    pub(super) fn lease(&self) -> Result<Option<Duration>, Problem> {
        seconds("lease_s", self.lease_s, MAX_LEASE_S)
    }

    pub(super) fn ttl(&self) -> Result<Option<Duration>, Problem> {
        seconds("ttl_s", self.ttl_s, MAX_TTL_S)
    }

    pub(super) fn on_unknown(&self) -> Result<OnUnknown, Problem> {
        Ok(optional("on_unknown", self.on_unknown)?.unwrap_or(OnUnknown::Rerun))
    }

    pub(super) fn epoch(&self) -> Result<Epoch, Problem> {
        whole("epoch", self.epoch.ok_or_else(|| missing("epoch"))?)
    }

    /// The bytes of the response, as they were sent.
    pub(super) fn response(&self) -> Result<&'a str, Problem> {
        self.response.map(RawValue::get).ok_or_else(|| missing("response"))
    }

    pub(super) fn released(&self) -> Result<Released, Problem> {
        match optional::<String>("outcome", self.outcome)?.as_deref() {
            None | Some("nothing_done") => Ok(Released::NothingDone),
            Some("unknown") => Ok(Released::Unknown),
            Some(other) => {
                Err(Problem::invalid(format!("the field outcome is {other:?}, not nothing_done or unknown")))
            }
        }
    }

    pub(super) fn reason(&self) -> Result<Option<String>, Problem> {
        self.reason.map(|raw| text("reason", Some(raw), MAX_REASON_CHARACTERS)).transpose()
    }
}

fn missing(name: &str) -> Problem {
    Problem::invalid(format!("the field {name} is missing"))
}

fn required<T: DeserializeOwned>(name: &str, raw: Option<&RawValue>) -> Result<T, Problem> {
    let raw = raw.ok_or_else(|| missing(name))?;
    serde_json::from_str(raw.get()).map_err(|error| Problem::invalid(format!("the field {name} is invalid: {error}")))
}

fn optional<T: DeserializeOwned>(name: &str, raw: Option<&RawValue>) -> Result<Option<T>, Problem> {
    raw.map(|raw| required(name, Some(raw))).transpose()
}

fn text(name: &str, raw: Option<&RawValue>, most: usize) -> Result<String, Problem> {
    let text: String = required(name, raw)?;
    if text.is_empty() || text.chars().count() > most || text.chars().any(char::is_control) {
        let wrong = format!("the field {name} must have 1 to {most} characters without control characters");
        return Err(Problem::invalid(wrong));
    }
    Ok(text)
}

/// Parses a whole number. `7.0` is one too: JSON does not distinguish them, and some encoders write it.
fn whole(name: &str, raw: &RawValue) -> Result<i64, Problem> {
    let is_whole = |number: &f64| number.fract() == 0.0 && number.abs() < 2_f64.powi(63);
    let decimal = || serde_json::from_str::<f64>(raw.get()).ok().filter(is_whole);
    required(name, Some(raw)).or_else(|problem| decimal().map(|number| number as i64).ok_or(problem))
}

fn seconds(name: &str, raw: Option<&RawValue>, most: i64) -> Result<Option<Duration>, Problem> {
    let Some(raw) = raw else { return Ok(None) };
    let seconds = whole(name, raw)?;
    if !(1..=most).contains(&seconds) {
        return Err(Problem::invalid(format!("the field {name} must be 1 to {most}, not {seconds}")));
    }
    Ok(Some(Duration::from_secs(seconds.unsigned_abs())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 8] =
        ["scope", "business_type", "key", "business_id", "token", "fingerprint", "lease_s", "on_unknown"];

    fn refusal(body: &str) -> String {
        let parsed = Fields::parse(body.as_bytes(), &KNOWN).and_then(|fields| {
            fields.fingerprint()?;
            fields.lease()?;
            fields.on_unknown()?;
            fields.identity()
        });
        format!("{:?}", parsed.unwrap_err())
    }

    #[test]
    fn every_field_of_a_claim_is_parsed() {
        let body = br#"{"scope":"shop","business_type":"order","key":"7","fingerprint":"x","lease_s":7.0,
            "on_unknown":"uncertain"}"#;
        let fields = Fields::parse(body, &KNOWN).unwrap();
        assert_eq!(fields.identity().unwrap().to_string(), "order/7 (scope shop)");
        assert_eq!(fields.lease().unwrap(), Some(Duration::from_secs(7)));
        assert_eq!(fields.on_unknown().unwrap(), OnUnknown::Uncertain);
        let other = Fields::parse(br#"{"fingerprint":null}"#, &KNOWN).unwrap();
        assert_ne!(fields.fingerprint().unwrap(), other.fingerprint().unwrap());
        assert_eq!((other.lease().unwrap(), other.on_unknown().unwrap()), (None, OnUnknown::Rerun));
    }

    #[test]
    fn error_names_the_field() {
        let with = |more: &str| format!(r#"{{"scope":"s","business_type":"t","key":"k"{more}}}"#);
        for (body, word) in [
            (with(r#","epoch":1"#), "the field epoch is unknown here"),
            (with(r#","token":"x""#), "send scope and key, or business_id and token"),
            (with(r#","business_id":"7""#), "belongs to a token, which is missing"),
            (r#"{"business_type":"t","token":"x"}"#.into(), "the field business_id is missing"),
            (r#"{"business_type":"t","business_id":"7","token":"x"}"#.into(), "token-invalid"),
            (with(r#","lease":1"#), "unknown field `lease`"),
            (with(r#","key":"k""#), "duplicate field `key`"),
            (with(r#","lease_s":0"#), "lease_s must be 1 to 600"),
            (with(r#","lease_s":601"#), "lease_s must be 1 to 600"),
            (with(r#","lease_s":1.5"#), "the field lease_s is invalid"),
            (with(r#","on_unknown":"maybe""#), "the field on_unknown is invalid"),
            (with(r#","fingerprint":"""#), "the field fingerprint must have 1 to 255"),
            (r#"{"business_type":"t","key":"k"}"#.into(), "the field scope is missing"),
            (r#"{"scope":"s","business_type":"t","key":""}"#.into(), "key of an idempotency record"),
            ("[]".into(), "it must be a JSON object"),
        ] {
            assert!(refusal(&body).contains(word), "{body}: {}", refusal(&body));
        }
    }
}
