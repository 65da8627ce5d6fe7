//! `/v1/key-rules`: keys that redrive jobs leave alone or never block.

use axum::extract::{RawQuery, Request};
use axum::{Extension, Json};
use landfall::{Key, KeyRule, KeyRuleKind, Timestamp, TopicName};
use serde::{Deserialize, Serialize};

use super::filter::{repeated, unknown};
use super::request::Whole;
use super::{MAX_REASON_CHARACTERS, actor, detached, words};
use crate::http::auth::Caller;
use crate::http::deliveries::{DEFAULT_LIMIT, parse_limit};
use crate::http::problem::Problem;
use crate::http::{Shared, body};

/// The most bytes of a body.
const BODY_LIMIT: usize = 16 * 1024;

/// Ten years.
const MAX_SECONDS: i64 = 3660 * 24 * 3600;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    topic: String,
    key: String,
    /// `blocked`, `allowed` or `none`.
    rule: String,
    for_s: Option<Whole>,
    reason: String,
    actor: Option<String>,
}

#[derive(Debug, Serialize)]
pub(in crate::http) struct Rules {
    items: Vec<KeyRule>,
}

#[derive(Debug, Serialize)]
pub(in crate::http) struct Changed {
    topic: TopicName,
    key: Key,
    rule: &'static str,
    until: Option<Timestamp>,
}

pub(in crate::http) async fn list(
    axum::extract::State(state): Shared,
    RawQuery(query): RawQuery,
) -> Result<Json<Rules>, Problem> {
    let mut limit = None;
    for (name, value) in form_urlencoded::parse(query.as_deref().unwrap_or_default().as_bytes()) {
        if name != "limit" {
            return Err(unknown(&name));
        }
        if limit.replace(parse_limit(&value)?).is_some() {
            return Err(repeated("limit"));
        }
    }
    Ok(Json(Rules { items: state.key_rules.key_rules(limit.unwrap_or(DEFAULT_LIMIT)).await? }))
}

pub(in crate::http) async fn change(
    axum::extract::State(state): Shared,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Json<Changed>, Problem> {
    // The body first: a client that is refused while it still sends may get a reset instead of the response.
    let body = body::read(request.into_body(), BODY_LIMIT, state.request_timeout).await?;
    let fields = parse(&body)?;
    let (topic, key) = (TopicName::new(fields.topic)?, Key::new(fields.key)?);
    let reason = words("reason", &fields.reason, MAX_REASON_CHARACTERS)?.to_owned();
    let actor = actor(fields.actor.as_deref(), &caller)?;
    let rules = state.key_rules.clone();
    if fields.rule == "none" {
        let (of_topic, of_key) = (topic.clone(), key.clone());
        detached(async move { rules.remove_key_rule(&of_topic, &of_key, &reason, &actor).await }).await?;
        return Ok(Json(Changed { topic, key, rule: "none", until: None }));
    }
    let (kind, since) = (fields.rule.parse::<KeyRuleKind>()?, Timestamp::now());
    let until = fields.for_s.map(|Whole(seconds)| Timestamp::from_millis(since.as_millis() + seconds * 1000));
    let rule = KeyRule { topic: topic.clone(), key: key.clone(), rule: kind, until, reason, actor, since };
    detached(async move { rules.set_key_rule(&rule).await }).await?;
    Ok(Json(Changed { topic, key, rule: kind.as_str(), until }))
}

fn parse(body: &[u8]) -> Result<Fields, Problem> {
    let wrong = |why: &dyn std::fmt::Display| Problem::invalid(format!("the body is not a key rule: {why}"));
    // serde would also accept an array with the values in field order.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(wrong(&"it must be a JSON object with topic, key, rule and reason"));
    }
    let fields: Fields = serde_json::from_slice(body).map_err(|error| wrong(&error))?;
    match fields.for_s {
        Some(_) if fields.rule == "none" => Err(wrong(&"for_s is of blocked and allowed only")),
        Some(Whole(seconds)) if !(1..=MAX_SECONDS).contains(&seconds) => {
            Err(wrong(&format!("for_s must be a number from 1 to {MAX_SECONDS}")))
        }
        _ => Ok(fields),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_needs_a_key_and_a_reason() {
        let whole = r#"{"topic": "orders", "key": "k", "rule": "blocked", "for_s": 60, "reason": "x"}"#;
        assert_eq!(parse(whole.as_bytes()).unwrap().for_s.map(|Whole(seconds)| seconds), Some(60));
        for wrong in [
            "",
            "[]",
            r#"{"topic": "orders", "key": "k", "rule": "blocked"}"#,
            r#"{"topic": "orders", "key": "k", "rule": "none", "for_s": 60, "reason": "x"}"#,
            r#"{"topic": "orders", "key": "k", "rule": "blocked", "for_s": 0, "reason": "x"}"#,
            r#"{"topic": "orders", "key": "k", "rule": "blocked", "reason": "x", "why": "y"}"#,
        ] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong} was accepted");
        }
    }
}
