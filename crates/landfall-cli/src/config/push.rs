//! `[[subscription]]` and `[push]`: the topics the daemon posts, and the addresses it may post to.

use std::time::Duration;

use hyper::Uri;
use landfall::consume::RetryLane;
use landfall::{Backoff, GroupName, TopicName};

use super::fields::Fields;
use super::secret;
use super::value::{Given, Problem, Value, type_of};
use crate::push::{Rules, SigningKey};

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Push {
    pub(crate) rules: Rules,
    /// PEM file with additional trusted certificate authorities; empty for none.
    pub(crate) ca_file: String,
}

/// A topic whose messages are posted to a URL.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Subscription {
    pub(crate) topic: TopicName,
    pub(crate) group: GroupName,
    pub(crate) url: Uri,
    /// Each key signs every request; empty for unsigned requests.
    pub(crate) keys: Vec<SigningKey>,
    pub(crate) concurrency: usize,
    pub(crate) timeout: Duration,
    pub(crate) backoff: Backoff,
    /// Whether parked messages are also published to `<topic>.dlq`.
    pub(crate) letter_topic: bool,
    /// Where a failed message waits for its next attempt.
    pub(crate) retry_lane: RetryLane,
    /// Where the receiver says whether it would accept a message, without acting on it.
    pub(crate) rehearse_url: Option<Uri>,
}

const FIELDS: [&str; 12] = [
    "topic",
    "group",
    "url",
    "secret",
    "concurrency",
    "timeout_ms",
    "max_attempts",
    "backoff_first_ms",
    "backoff_cap_ms",
    "letter_topic",
    "retry_lane",
    "rehearse_url",
];
const DAY_MS: u64 = 86_400_000;

/// Reads `subscription`: one TOML table each.
pub(super) fn subscriptions(value: &Value<'_>) -> Result<Vec<Subscription>, Problem> {
    let array = value.tables("[[subscription]] and below it topic, group and url")?;
    let mut found: Vec<Subscription> = Vec::with_capacity(array.len());
    for (index, entry) in array.iter().enumerate() {
        let one = read_one(entry, value).map_err(|Problem(rest)| Problem(format!("[{index}]{rest}")))?;
        if found.iter().any(|other| (&other.topic, &other.group) == (&one.topic, &one.group)) {
            let text = format!("[{index}] subscribes the group {} to {} a second time", one.group, one.topic);
            return Err(Problem(text));
        }
        found.push(one);
    }
    Ok(found)
}

fn read_one(entry: &toml::Value, value: &Value<'_>) -> Result<Subscription, Problem> {
    let fields = Fields::read(entry, value, &FIELDS)?;
    let backoff = Backoff {
        first: fields.millis("backoff_first_ms", 200, DAY_MS)?,
        cap: fields.millis("backoff_cap_ms", 60_000, DAY_MS)?,
        max_attempts: fields.whole("max_attempts", 12, 1, 1_000_000)? as u32,
    };
    if backoff.first > backoff.cap {
        return Err(Problem(".backoff_first_ms is greater than backoff_cap_ms".into()));
    }
    Ok(Subscription {
        topic: fields.parsed("topic")?,
        group: fields.parsed("group")?,
        url: url("url", &fields.resolved("url")?.ok_or_else(|| Problem(" needs a url".into()))?)?,
        keys: fields.keys()?,
        concurrency: fields.whole("concurrency", 8, 1, 1000)? as usize,
        timeout: fields.millis("timeout_ms", 10_000, 3_600_000)?,
        backoff,
        letter_topic: fields.flag("letter_topic")?,
        retry_lane: fields.retry_lane()?,
        rehearse_url: fields
            .resolved("rehearse_url")?
            .filter(|text| !text.is_empty())
            .map(|text| url("rehearse_url", &text))
            .transpose()?,
    })
}

fn url(name: &str, text: &str) -> Result<Uri, Problem> {
    receiver_url(text).map_err(|what| Problem(format!(".{name} {what}")))
}

/// Parses the URL of a receiver. The error is the end of a sentence. It does not repeat the URL, which may hold a
/// token.
pub(crate) fn receiver_url(text: &str) -> Result<Uri, &'static str> {
    let url: Uri = text.parse().map_err(|_| "is not a valid URL")?;
    let authority = url.authority().ok_or("must begin with https:// or http:// and a host")?;
    if !matches!(url.scheme_str(), Some("http" | "https")) {
        return Err("must begin with https:// or http://");
    }
    if authority.as_str().contains('@') {
        return Err("must not contain a user or a password; sign the requests with a secret instead");
    }
    // The parser accepts any digits, and a port it cannot represent would count as the default one.
    let port = authority.as_str().strip_prefix(authority.host()).and_then(|rest| rest.strip_prefix(':'));
    if port.is_some_and(|port| !port.parse().is_ok_and(|port: u16| port > 0)) {
        return Err("must have a port from 1 to 65535, or none");
    }
    Ok(url)
}

impl Fields<'_> {
    /// Reads `secret`: one, or several while a receiver rotates its secret.
    fn keys(&self) -> Result<Vec<SigningKey>, Problem> {
        let Some(given) = self.fields.get("secret") else { return Ok(Vec::new()) };
        let given = Given::Toml(given.clone());
        signing_keys(&Value { given: &given, environment: self.value.environment })
            .map_err(|Problem(rest)| Problem(format!(".secret{rest}")))
    }

    fn retry_lane(&self) -> Result<RetryLane, Problem> {
        match self.text("retry_lane")?.unwrap_or("broker") {
            "broker" => Ok(RetryLane::Broker),
            "topic" => Ok(RetryLane::Topic),
            "database" => Ok(RetryLane::Database),
            other => Err(Problem(format!(".retry_lane must be broker, topic or database, not {other:?}"))),
        }
    }
}

/// Reads signing secrets: one, or several while a receiver rotates its secret. An empty string is none.
pub(super) fn signing_keys(value: &Value<'_>) -> Result<Vec<SigningKey>, Problem> {
    let wrong = |other: &toml::Value| Problem(format!(" must be a string, not {}", type_of(other)));
    let texts: Vec<&str> = match value.given {
        Given::Toml(toml::Value::String(text)) | Given::Text(text) => vec![text],
        Given::Toml(toml::Value::Array(items)) => {
            items.iter().map(|item| item.as_str().ok_or_else(|| wrong(item))).collect::<Result<_, _>>()?
        }
        Given::Toml(other) => return Err(wrong(other)),
    };
    let key = |text: &str| {
        let secret = secret::resolve(text, &|name| value.environment.get(name));
        let secret = secret.map_err(|problem| Problem(format!(" {problem}")))?;
        SigningKey::new(&secret).map_err(|wanted| Problem(format!(" {wanted}")))
    };
    texts.into_iter().filter(|text| !text.is_empty()).map(key).collect()
}

/// Reads `push.allowed_hosts`.
pub(super) fn hosts(value: &Value<'_>) -> Result<Vec<String>, Problem> {
    let wrong = || Problem(r#" must be an array of host names such as ["mailer.internal"]"#.into());
    let names: Vec<String> = match value.given {
        Given::Toml(toml::Value::Array(items)) => {
            items.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong)).collect::<Result<_, _>>()?
        }
        Given::Toml(_) => return Err(wrong()),
        Given::Text(text) => text.split(',').map(str::to_owned).collect(),
    };
    let names = names.iter().map(|name| name.trim().to_ascii_lowercase()).filter(|name| !name.is_empty()).collect();
    Ok(names)
}

#[cfg(test)]
#[path = "push_tests.rs"]
mod tests;
