//! The port of key rules: keys that redrive jobs leave alone, and keys that are exempt from the automatic block.

use async_trait::async_trait;
use serde::Serialize;

use crate::{Error, Key, Result, Timestamp, TopicName};

/// What redrive jobs do with the letters of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyRuleKind {
    /// They skip them.
    Blocked,
    /// They redrive them although redrives have failed often.
    Allowed,
}

impl KeyRuleKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Allowed => "allowed",
        }
    }
}

impl std::str::FromStr for KeyRuleKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "blocked" => Ok(Self::Blocked),
            "allowed" => Ok(Self::Allowed),
            text => Err(Error::invalid(format!("rule {text:?} is neither blocked nor allowed"))),
        }
    }
}

/// A rule for one key of a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyRule {
    pub topic: TopicName,
    pub key: Key,
    pub rule: KeyRuleKind,
    /// When it ends; `None` for never.
    pub until: Option<Timestamp>,
    pub reason: String,
    pub actor: String,
    pub since: Timestamp,
}

/// Rules that people make for keys. Every change writes an audit row in the same transaction. A person who redrives
/// one letter by its id is not bound by them.
#[async_trait]
pub trait KeyRules: Send + Sync {
    /// Sets the rule of a key, in place of another. Fails with kind `Invalid` if it would end in the past.
    async fn set_key_rule(&self, rule: &KeyRule) -> Result<()>;

    /// Removes the rule of a key and returns whether there was one.
    async fn remove_key_rule(&self, topic: &TopicName, key: &Key, reason: &str, actor: &str) -> Result<bool>;

    /// Returns at most `limit` rules in force, the newest first.
    async fn key_rules(&self, limit: usize) -> Result<Vec<KeyRule>>;
}
