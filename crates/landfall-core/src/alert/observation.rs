//! What the daemon observes before it decides about alerts.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{DeadLetterId, GroupName, Timestamp, TopicName};

/// The time in which recorded letters are counted, and the time before it that says how many are usual.
pub const RATE_WINDOW: Duration = Duration::from_secs(600);
pub const RATE_BASELINE: Duration = Duration::from_secs(24 * 3600);

/// Everything that rules look at. `None` is unknown: alerts about it stay as they are.
#[derive(Debug, Clone, Default)]
pub struct AlertObservations {
    pub letters: Option<LetterObservations>,
    pub outbox_oldest: Option<Duration>,
    /// Topic, group, and how many messages the group has not finished.
    pub lags: Option<Vec<(String, String, u64)>>,
    pub uncertain_records: Option<u64>,
    /// Half messages that are parked or contradicted.
    pub half_messages: Option<u64>,
}

/// What is observed about dead letters. The group is empty for letters of the relay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LetterObservations {
    pub parked: Vec<ParkedLetters>,
    /// The keys that have waited longest.
    pub keys: Vec<ParkedKey>,
    pub recorded: Vec<RecordedLetters>,
    /// By rule: the parked errors that have no alert of the rule yet, those whose alert is open, and those whose alert
    /// was not stored for [`ALERT_MEMORY`](crate::ALERT_MEMORY).
    pub groups: BTreeMap<String, Vec<ObservedGroup>>,
}

/// The parked letters of a topic and group, without ignored ones. Letters that are being redriven count as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkedLetters {
    pub topic: String,
    pub group: String,
    pub count: u64,
    pub oldest: DeadLetterId,
    pub newest: DeadLetterId,
    pub oldest_at: Timestamp,
}

/// A key that waits behind parked letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkedKey {
    pub topic: String,
    pub group: String,
    pub key: String,
    pub count: u64,
    pub oldest: DeadLetterId,
    pub oldest_at: Timestamp,
}

/// How many letters of a topic and group were recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedLetters {
    pub topic: String,
    pub group: String,
    /// In the last [`RATE_WINDOW`].
    pub recent: u64,
    /// In the [`RATE_BASELINE`] before that.
    pub before: u64,
    pub newest: DeadLetterId,
}

/// Parked letters with the same error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedGroup {
    pub fingerprint: String,
    pub count: u64,
    /// The newest letter, and where it failed.
    pub sample: DeadLetterId,
    pub topic: String,
    pub group: String,
    pub error_code: String,
    pub error: String,
}

/// Which letters are observed.
#[derive(Debug, Clone)]
pub struct LetterQuery {
    /// Only keys with a letter first seen before.
    pub keys_before: Timestamp,
    pub most_keys: usize,
    pub now: Timestamp,
    /// The rules that look for new errors.
    pub groups: Vec<GroupQuery>,
}

/// Which errors a rule looks for.
#[derive(Debug, Clone)]
pub struct GroupQuery {
    pub rule: String,
    pub topic: Option<TopicName>,
    pub group: Option<GroupName>,
    pub most: usize,
}
