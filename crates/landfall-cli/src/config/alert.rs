//! `[alerts]`, `[[alert]]` and `[[alert_channel]]`: what is reported, and where.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use hyper::Uri;
use landfall::{AlertKind, AlertRule};

use super::key::closest;
use super::push::{receiver_url, signing_keys};
use super::value::{Given, Problem, Value, type_of};
use super::{Push, Secret, secret};
use crate::error::{Error, Result};
use crate::push::{Rules, SigningKey};
use crate::units;

/// How alerts are evaluated and delivered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Alerts {
    /// The pause between two evaluations.
    pub(crate) interval: Duration,
    /// The base URL of links to messages; empty for no links.
    pub(crate) link_base: String,
    /// Which addresses channels may be at.
    pub(crate) push: Push,
    /// Rules that replace a built-in one or add to them.
    pub(crate) rules: Vec<RuleEntry>,
    pub(crate) channels: Vec<Channel>,
}

/// A rule as it is written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RuleEntry {
    rule: AlertRule,
    is_enabled: bool,
    /// `None` for all channels.
    channels: Option<Vec<String>>,
}

/// Where notices are delivered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Channel {
    pub(crate) name: String,
    pub(crate) url: ChannelUrl,
    pub(crate) kind: ChannelKind,
    pub(crate) timeout: Duration,
    /// After this time a notice that is not accepted is given up.
    pub(crate) give_up_after: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ChannelKind {
    /// Each key signs every request.
    Webhook {
        keys: Vec<SigningKey>,
    },
    Slack,
    DingTalk {
        /// Signs every request; `None` for a robot without signature.
        secret: Option<Secret>,
        /// A word that the robot requires in each text.
        keyword: String,
    },
}

/// The URL of a channel, which may hold a token: `Debug` shows only its host.
#[derive(Clone, PartialEq)]
pub(crate) struct ChannelUrl(pub(crate) Uri);

impl fmt::Debug for ChannelUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

impl ChannelUrl {
    /// Returns the URL without its path and query.
    fn shown(&self) -> String {
        let authority = self.0.authority().map_or("", |authority| authority.as_str());
        format!("{}://{authority}/***", self.0.scheme_str().unwrap_or("http"))
    }
}

impl Default for Alerts {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(5),
            link_base: String::new(),
            push: Push { rules: Rules { section: "alerts", ..Rules::default() }, ca_file: String::new() },
            rules: Vec::new(),
            channels: Vec::new(),
        }
    }
}

impl Alerts {
    /// Returns the rules that apply: the built-in ones, and those of the configuration in place of rules with their
    /// name.
    pub(crate) fn effective_rules(&self) -> Vec<AlertRule> {
        let all: Vec<String> = self.channels.iter().map(|channel| channel.name.clone()).collect();
        let is_replaced = |name: &str| self.rules.iter().any(|entry| entry.rule.name == name);
        let built_in = AlertKind::ALL.into_iter().map(AlertRule::built_in).filter(|rule| !is_replaced(&rule.name));
        let mut rules: Vec<_> = built_in.map(|rule| AlertRule { channels: all.clone(), ..rule }).collect();
        let own = self.rules.iter().filter(|entry| entry.is_enabled).map(|entry| {
            let channels = entry.channels.clone().unwrap_or_else(|| all.clone());
            AlertRule { channels, ..entry.rule.clone() }
        });
        rules.extend(own);
        rules
    }

    /// Refuses rules that name a channel which is not configured.
    pub(super) fn check(&self) -> Result<()> {
        let names: Vec<&str> = self.channels.iter().map(|channel| channel.name.as_str()).collect();
        let of_rule = |(index, entry): (usize, &RuleEntry)| {
            let named = entry.channels.iter().flatten();
            named.map(move |channel| (index, channel.clone())).collect::<Vec<_>>()
        };
        let mut named = self.rules.iter().enumerate().flat_map(of_rule);
        let Some((index, channel)) = named.find(|(_, channel)| !names.contains(&channel.as_str())) else {
            return Ok(());
        };
        let near = closest(&channel, names.iter().copied(), |known| strsim::jaro_winkler(&channel, known));
        let hint = near.map_or_else(
            || "add an [[alert_channel]] with this name".to_owned(),
            |near| format!("did you mean {near:?}?"),
        );
        Err(Error::usage(format!("alert[{index}].channels names the unknown channel {channel:?}; {hint}")))
    }
}

const RULE_FIELDS: [&str; 10] =
    ["rule", "name", "channels", "threshold", "for", "repeat", "quiet", "topic", "group", "enabled"];
const CHANNEL_FIELDS: [&str; 7] = ["name", "type", "url", "secret", "keyword", "timeout_ms", "give_up_after"];

/// The longest name of a rule or a channel.
const MAX_NAME: usize = 64;

/// Reads `alert`: one TOML table each.
pub(super) fn rules(value: &Value<'_>) -> Result<Vec<RuleEntry>, Problem> {
    let array = value.tables("[[alert]] and below it a rule")?;
    let mut names = HashSet::new();
    let read = |(index, entry): (usize, &toml::Value)| {
        let about = |Problem(rest): Problem| Problem(format!("[{index}]{rest}"));
        let fields = Fields::new(entry, value, &RULE_FIELDS).map_err(about)?;
        let one = read_rule(&fields).map_err(about)?;
        if !names.insert(one.rule.name.clone()) {
            let name = &one.rule.name;
            return Err(about(Problem(format!(" is a second rule {name:?}; give it another name"))));
        }
        Ok(one)
    };
    array.iter().enumerate().map(read).collect()
}

fn read_rule(fields: &Fields<'_>) -> Result<RuleEntry, Problem> {
    let kind = fields.kind()?;
    let built_in = AlertRule::built_in(kind);
    let (topic, group) = (fields.parsed("topic")?, fields.parsed("group")?);
    if !kind.has_topics() && (topic.is_some() || group.is_some()) {
        return Err(Problem(format!(" is about {}, which has no topic and no group", kind.as_str())));
    }
    let repeat = fields.amount("repeat", units::retention)?.map_or(built_in.repeat, |limit| limit.0);
    let rule = AlertRule {
        name: fields.name("name")?.unwrap_or(built_in.name),
        kind,
        threshold: fields.threshold(kind)?.unwrap_or(built_in.threshold),
        hold_for: fields.amount("for", units::age)?.unwrap_or(built_in.hold_for),
        repeat,
        quiet: fields.amount("quiet", units::age)?.unwrap_or(built_in.quiet),
        topic,
        group,
        channels: Vec::new(),
    };
    Ok(RuleEntry { rule, is_enabled: fields.flag("enabled", true)?, channels: fields.texts("channels")? })
}

/// Reads `alert_channel`: one TOML table each.
pub(super) fn channels(value: &Value<'_>) -> Result<Vec<Channel>, Problem> {
    let array = value.tables("[[alert_channel]] and below it name, type and url")?;
    let mut names = HashSet::new();
    let read = |(index, entry): (usize, &toml::Value)| {
        let about = |Problem(rest): Problem| Problem(format!("[{index}]{rest}"));
        let one = Fields::new(entry, value, &CHANNEL_FIELDS).and_then(|fields| read_channel(&fields)).map_err(about)?;
        if !names.insert(one.name.clone()) {
            return Err(about(Problem(format!(" is a second channel {:?}", one.name))));
        }
        Ok(one)
    };
    array.iter().enumerate().map(read).collect()
}

fn read_channel(fields: &Fields<'_>) -> Result<Channel, Problem> {
    let name = fields.name("name")?.ok_or_else(|| Problem(" needs a name".into()))?;
    let kind = match fields.text("type")? {
        Some("webhook") => ChannelKind::Webhook { keys: fields.keys()? },
        Some("slack") => ChannelKind::Slack,
        Some("dingtalk") => ChannelKind::DingTalk {
            secret: fields.resolved("secret")?.filter(|secret| !secret.is_empty()).map(Secret::new),
            keyword: fields.text("keyword")?.unwrap_or_default().to_owned(),
        },
        Some(other) => return Err(Problem(format!(".type must be webhook, slack or dingtalk, not {other:?}"))),
        None => return Err(Problem(" needs a type: webhook, slack or dingtalk".into())),
    };
    if kind == ChannelKind::Slack && fields.has("secret") {
        return Err(Problem(" has a secret, and a webhook of Slack has none: its URL is the secret".into()));
    }
    if fields.has("keyword") && !matches!(kind, ChannelKind::DingTalk { .. }) {
        return Err(Problem(" has a keyword, which only robots of DingTalk have".into()));
    }
    let url = fields.resolved("url")?.ok_or_else(|| Problem(" needs a url".into()))?;
    let url = ChannelUrl(receiver_url(&url).map_err(|what| Problem(format!(".url {what}")))?);
    let give_up_after = fields.amount("give_up_after", units::age)?.unwrap_or(Duration::from_secs(24 * 3600));
    if give_up_after.is_zero() {
        return Err(Problem(".give_up_after must be longer than 0".into()));
    }
    Ok(Channel { name, url, kind, timeout: fields.millis("timeout_ms", 10_000, 60_000)?, give_up_after })
}

/// The fields of one table.
struct Fields<'a> {
    fields: &'a toml::Table,
    value: &'a Value<'a>,
}

impl<'a> Fields<'a> {
    fn new(entry: &'a toml::Value, value: &'a Value<'a>, known: &[&'static str]) -> Result<Self, Problem> {
        let toml::Value::Table(fields) = entry else {
            return Err(Problem(format!(" must be a table, not {}", type_of(entry))));
        };
        if let Some(unknown) = fields.keys().find(|name| !known.contains(&name.as_str())) {
            let meant = closest(unknown, known.iter().copied(), |known| strsim::jaro_winkler(unknown, known));
            let hint = meant.map_or(format!(" it has {}", known.join(", ")), |name| format!(" did you mean {name:?}?"));
            return Err(Problem(format!(" has the unknown key {unknown:?};{hint}")));
        }
        Ok(Self { fields, value })
    }

    fn has(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }

    fn text(&self, name: &str) -> Result<Option<&str>, Problem> {
        match self.fields.get(name) {
            None => Ok(None),
            Some(toml::Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(Problem(format!(".{name} must be a string, not {}", type_of(other)))),
        }
    }

    fn texts(&self, name: &str) -> Result<Option<Vec<String>>, Problem> {
        let wrong = || Problem(format!(".{name} must be an array of names such as [\"ops\"]"));
        match self.fields.get(name) {
            None => Ok(None),
            Some(toml::Value::Array(items)) => items
                .iter()
                .map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong))
                .collect::<Result<_, _>>()
                .map(Some),
            Some(_) => Err(wrong()),
        }
    }

    /// Reads a name that is stored and shown: letters, digits, `-`, `_` and `.`.
    fn name(&self, name: &str) -> Result<Option<String>, Problem> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let is_valid = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if text.is_empty() || text.len() > MAX_NAME || !text.chars().all(is_valid) {
            let wanted = format!("must have 1 to {MAX_NAME} letters, digits, -, _ or .");
            return Err(Problem(format!(".{name} {wanted}, not {text:?}")));
        }
        Ok(Some(text.to_owned()))
    }

    fn kind(&self) -> Result<AlertKind, Problem> {
        let names = AlertKind::ALL.map(AlertKind::as_str);
        let text = self.text("rule")?.ok_or_else(|| Problem(format!(" needs a rule: {}", names.join(", "))))?;
        text.parse().map_err(|_| {
            let near = closest(text, names.into_iter(), |known| strsim::jaro_winkler(text, known));
            let hint =
                near.map_or(format!("the rules are {}", names.join(", ")), |near| format!("did you mean {near:?}?"));
            Problem(format!(".rule {text:?} is unknown; {hint}"))
        })
    }

    fn parsed<T: FromStr<Err = landfall::Error>>(&self, name: &str) -> Result<Option<T>, Problem> {
        let parsed = self.text(name)?.map(str::parse).transpose();
        parsed.map_err(|error| Problem(format!(".{name}: {error}")))
    }

    fn resolved(&self, name: &str) -> Result<Option<String>, Problem> {
        let resolve = |text| secret::resolve(text, &|name| self.value.environment.get(name));
        let resolved = self.text(name)?.map(resolve).transpose();
        resolved.map_err(|problem| Problem(format!(".{name} {problem}")))
    }

    /// Reads the threshold: a number, or for an age a time such as `1h`.
    fn threshold(&self, kind: AlertKind) -> Result<Option<u64>, Problem> {
        let Some(given) = self.given("threshold") else { return Ok(None) };
        let value = Value { given: &given, environment: self.value.environment };
        let read = if kind.is_age() {
            value.amount(units::age).map(|age| age.as_secs())
        } else {
            value.whole(0, u64::MAX >> 1)
        };
        read.map(Some).map_err(|Problem(rest)| Problem(format!(".threshold{rest}")))
    }

    fn amount<T>(&self, name: &str, read: fn(&str) -> Result<T, &'static str>) -> Result<Option<T>, Problem> {
        let Some(given) = self.given(name) else { return Ok(None) };
        let amount = Value { given: &given, environment: self.value.environment }.amount(read);
        amount.map(Some).map_err(|Problem(rest)| Problem(format!(".{name}{rest}")))
    }

    fn millis(&self, name: &str, default: u64, most: u64) -> Result<Duration, Problem> {
        let Some(given) = self.given(name) else { return Ok(Duration::from_millis(default)) };
        let whole = Value { given: &given, environment: self.value.environment }.whole(1, most);
        whole.map(Duration::from_millis).map_err(|Problem(rest)| Problem(format!(".{name}{rest}")))
    }

    fn flag(&self, name: &str, default: bool) -> Result<bool, Problem> {
        match self.fields.get(name) {
            None => Ok(default),
            Some(toml::Value::Boolean(said)) => Ok(*said),
            Some(other) => Err(Problem(format!(".{name} must be true or false, not {}", type_of(other)))),
        }
    }

    fn keys(&self) -> Result<Vec<SigningKey>, Problem> {
        let Some(given) = self.given("secret") else { return Ok(Vec::new()) };
        signing_keys(&Value { given: &given, environment: self.value.environment })
            .map_err(|Problem(rest)| Problem(format!(".secret{rest}")))
    }

    fn given(&self, name: &str) -> Option<Given> {
        self.fields.get(name).map(|given| Given::Toml(given.clone()))
    }
}

/// Reads `alerts.link_base`: the beginning of links to messages, without a slash at its end.
pub(super) fn link_base(value: &Value<'_>) -> Result<String, Problem> {
    let text = value.text()?.trim_end_matches('/');
    if !text.is_empty() {
        receiver_url(text).map_err(|what| Problem(format!(" {what}")))?;
    }
    Ok(text.to_owned())
}

#[cfg(test)]
#[path = "alert_tests.rs"]
mod tests;
