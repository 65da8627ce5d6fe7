//! `landfall dlq block`, `allow`, `unblock` and `blocked`: rules for keys.

use std::time::Duration;

use clap::Args;
use landfall::{Key, KeyRule, KeyRuleKind, KeyRules, Timestamp, TopicName};
use serde_json::json;

use crate::actor::actor;
use crate::error::{Error, Result};
use crate::output::{Output, or_dash};
use crate::units;

/// Set a rule for the redrive jobs of a key. The audit table records the reason and --actor.
///
/// Jobs skip the letters of a blocked key. An allowed key is exempt from the automatic block after failed redrives. A
/// redrive of one letter by its id is not bound by rules.
#[derive(Debug, Args)]
pub(super) struct SetRule {
    #[command(flatten)]
    which: Which,
    /// How long the rule lasts: 12h, 7d [default: until `dlq unblock`].
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    duration: Option<Duration>,
}

/// Remove the rule of a key.
#[derive(Debug, Args)]
pub(super) struct Unblock {
    #[command(flatten)]
    which: Which,
}

#[derive(Debug, Args)]
struct Which {
    /// Ordering key.
    key: Key,
    /// Topic of the key.
    #[arg(long)]
    topic: TopicName,
    /// Why; recorded in the audit table.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Name for the audit table [default: $USER]
    #[arg(long)]
    actor: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// List the rules for keys, blocked and allowed, the newest first.
#[derive(Debug, Args)]
pub(super) struct Blocked {
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
    /// Maximum number of rules.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

fn time(text: &str) -> std::result::Result<Duration, String> {
    units::age(text).map_err(|wanted| format!("it {wanted}"))
}

impl SetRule {
    pub(super) async fn run(self, rules: &dyn KeyRules, kind: KeyRuleKind) -> Result<()> {
        let Which { key, topic, reason, actor: given, json } = self.which;
        let since = Timestamp::now();
        let end = |time: Duration| {
            let ms = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
            Timestamp::from_millis(since.as_millis().saturating_add(ms))
        };
        let rule =
            KeyRule { topic, key, rule: kind, until: self.duration.map(end), reason, actor: actor(given), since };
        rules.set_key_rule(&rule).await?;
        print(json, &[rule])
    }
}

impl Unblock {
    pub(super) async fn run(self, rules: &dyn KeyRules) -> Result<()> {
        let Which { key, topic, reason, actor: given, json } = self.which;
        if !rules.remove_key_rule(&topic, &key, &reason, &actor(given)).await? {
            return Err(Error::failed(format!("key {key} of {topic} has no rule; `landfall dlq blocked` lists them")));
        }
        let mut output = Output::new();
        if json {
            output.json(&json!({"topic": topic.as_str(), "key": key.as_str()}))?;
        } else {
            output.line("removed")?;
        }
        output.flush()
    }
}

impl Blocked {
    pub(super) async fn run(self, rules: &dyn KeyRules) -> Result<()> {
        print(self.json, &rules.key_rules(self.limit as usize).await?)
    }
}

fn print(json: bool, rules: &[KeyRule]) -> Result<()> {
    Output::new().list(json, rules, ["topic", "key", "rule", "until", "actor", "since", "reason"], |rule| {
        [
            rule.topic.to_string(),
            rule.key.to_string(),
            rule.rule.as_str().to_owned(),
            or_dash(rule.until),
            rule.actor.clone(),
            rule.since.to_string(),
            rule.reason.clone(),
        ]
    })
}
