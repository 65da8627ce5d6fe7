//! Rules: which observations are conditions, and when a condition is worth a notice.

use std::time::Duration;

use crate::{Error, GroupName, Result, TopicName};

/// What a rule looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AlertKind {
    /// A topic and group has dead letters that need a person.
    DeadLetter,
    /// An error that was never seen before.
    NewGroup,
    /// More letters than usual are recorded.
    DeadLetterRate,
    /// The oldest parked letter of a topic and group.
    DeadLetterAge,
    /// How long a key has waited behind a parked letter.
    KeyParked,
    OutboxAge,
    /// Messages that a consumer group has not finished, where the broker can tell.
    ConsumerLag,
    /// Idempotency records whose outcome is unknown.
    IdempotencyUncertain,
    /// Half messages that are parked, or whose verdict is contradicted.
    HalfMessage,
}

impl AlertKind {
    pub const ALL: [AlertKind; 9] = [
        Self::DeadLetter,
        Self::NewGroup,
        Self::DeadLetterRate,
        Self::DeadLetterAge,
        Self::KeyParked,
        Self::OutboxAge,
        Self::ConsumerLag,
        Self::IdempotencyUncertain,
        Self::HalfMessage,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::DeadLetter => "dead-letter",
            Self::NewGroup => "new-group",
            Self::DeadLetterRate => "dead-letter-rate",
            Self::DeadLetterAge => "dead-letter-age",
            Self::KeyParked => "key-parked",
            Self::OutboxAge => "outbox-age",
            Self::ConsumerLag => "consumer-lag",
            Self::IdempotencyUncertain => "idempotency-uncertain",
            Self::HalfMessage => "half-message",
        }
    }

    /// Returns whether its value and threshold are ages in seconds, not counts.
    pub fn is_age(self) -> bool {
        matches!(self, Self::DeadLetterAge | Self::KeyParked | Self::OutboxAge)
    }

    /// Returns whether its alerts are about topics and groups, so that a filter can select some.
    pub fn has_topics(self) -> bool {
        !matches!(self, Self::OutboxAge | Self::IdempotencyUncertain | Self::HalfMessage)
    }
}

impl std::str::FromStr for AlertKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let names: Vec<_> = Self::ALL.into_iter().map(Self::as_str).collect();
        let kind = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        kind.ok_or_else(|| Error::invalid(format!("rule {text:?} is none of {}", names.join(", "))))
    }
}

/// A rule as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertRule {
    /// Unique; the kind unless several rules have the same kind.
    pub name: String,
    pub kind: AlertKind,
    /// The condition holds above it: a count, an age in seconds, or for the rate a multiple of the usual.
    pub threshold: u64,
    /// How long the condition must hold before the alert fires.
    pub hold_for: Duration,
    /// After this time a firing alert is repeated; `None` never repeats it.
    pub repeat: Option<Duration>,
    /// The shortest time between two notices that the same alert fires.
    pub quiet: Duration,
    /// Only this topic, only this group.
    pub topic: Option<TopicName>,
    pub group: Option<GroupName>,
    /// The names of the channels that are notified.
    pub channels: Vec<String>,
}

impl AlertRule {
    /// Returns the rule of this kind that applies unless it is configured otherwise. It has no channels.
    pub fn built_in(kind: AlertKind) -> Self {
        const MINUTE: u64 = 60;
        let (threshold, hold_for) = match kind {
            AlertKind::DeadLetter | AlertKind::NewGroup => (0, 0),
            AlertKind::IdempotencyUncertain | AlertKind::HalfMessage => (0, 0),
            AlertKind::DeadLetterRate => (5, 0),
            AlertKind::DeadLetterAge => (24 * 60 * MINUTE, 0),
            AlertKind::KeyParked => (60 * MINUTE, 0),
            AlertKind::OutboxAge => (MINUTE, MINUTE),
            AlertKind::ConsumerLag => (10_000, 5 * MINUTE),
        };
        Self {
            name: kind.as_str().to_owned(),
            kind,
            threshold,
            hold_for: Duration::from_secs(hold_for),
            repeat: Some(Duration::from_secs(4 * 60 * MINUTE)),
            quiet: Duration::from_secs(5 * MINUTE),
            topic: None,
            group: None,
            channels: Vec::new(),
        }
    }

    /// Returns whether the rule is about this topic and group.
    pub(super) fn selects(&self, topic: &str, group: &str) -> bool {
        self.topic.as_ref().is_none_or(|wanted| wanted.as_str() == topic)
            && self.group.as_ref().is_none_or(|wanted| wanted.as_str() == group)
    }
}
