//! Alerts: conditions that need a person, their state, and the notices about it.
//!
//! ```text
//!   observed ─▶ conditions ─▶ evaluate ─▶ changes of alerts, with notices ─▶ one transaction
//!                               ▲  │
//!                               └──┘ the stored state
//!
//!   absent ─▶ pending ─(condition holds for `hold_for`)─▶ firing ─(condition ends)─▶ resolved
//!                └─(condition ends)─▶ resolved, without a notice
//! ```
//!
//! An alert is a rule and the labels of its subject, such as a topic and a group. Deciding is a pure function of what
//! was observed, what is stored, and the time. A change and its notices are stored together. So no notice is lost or
//! made twice by a crash, and its delivery is repeated under the same id until the receiver accepts it.

pub(crate) mod condition;
pub(crate) mod evaluate;
pub(crate) mod notice;
pub(crate) mod observation;
pub(crate) mod port;
pub(crate) mod rule;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{DeadLetterId, Error, MessageId, Result, Timestamp};

/// The id of an alert, derived from its rule and labels.
pub type AlertId = MessageId;

/// What an alert is about: names such as `topic` and `group` with their values.
pub type AlertLabels = BTreeMap<String, String>;

/// Where an alert is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AlertState {
    /// Its condition holds, not yet for long enough.
    Pending,
    Firing,
    /// Its condition does not hold.
    Resolved,
    /// Not an alert: the mute of a whole rule, and whether the rule has run before.
    Rule,
}

impl AlertState {
    pub const ALL: [AlertState; 4] = [Self::Pending, Self::Firing, Self::Resolved, Self::Rule];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Firing => "firing",
            Self::Resolved => "resolved",
            Self::Rule => "rule",
        }
    }
}

impl std::str::FromStr for AlertState {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let states = Self::ALL.into_iter().find(|state| state.as_str() == text);
        states.ok_or_else(|| Error::invalid(format!("state {text:?} is none of pending, firing, resolved")))
    }
}

/// An alert as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Alert {
    pub id: AlertId,
    pub rule: String,
    pub labels: AlertLabels,
    pub state: AlertState,
    /// What was observed last: a count, or an age in seconds.
    pub value: u64,
    pub threshold: u64,
    /// One sentence for people.
    pub summary: String,
    /// A dead letter to look at.
    pub sample: Option<DeadLetterId>,
    pub pending_since: Option<Timestamp>,
    pub firing_since: Option<Timestamp>,
    pub resolved_at: Option<Timestamp>,
    /// No notice that it fires is made before.
    pub muted_until: Option<Timestamp>,
    /// When a notice that it fires was made last.
    pub notified_at: Option<Timestamp>,
    /// The value and the sample of that notice.
    #[serde(skip)]
    pub notified_value: u64,
    #[serde(skip)]
    pub notified_sample: Option<DeadLetterId>,
    /// Grows with every change, so that a change of an outdated state is refused.
    #[serde(skip)]
    pub version: i64,
    pub updated_at: Timestamp,
}

impl Alert {
    /// Returns the id of the alert of `rule` about `labels`.
    pub fn id_of(rule: &str, labels: &AlertLabels) -> AlertId {
        MessageId::from_business(rule, &labels_json(labels))
    }

    /// Returns the id of the row of a whole rule, which no alert has.
    pub fn id_of_rule(rule: &str) -> AlertId {
        MessageId::from_business(rule, "rule")
    }

    /// Returns the row of a whole rule.
    pub fn of_rule(rule: &str, now: Timestamp) -> Self {
        Self {
            id: Self::id_of_rule(rule),
            rule: rule.to_owned(),
            labels: AlertLabels::new(),
            state: AlertState::Rule,
            value: 0,
            threshold: 0,
            summary: String::new(),
            sample: None,
            pending_since: None,
            firing_since: None,
            resolved_at: None,
            muted_until: None,
            notified_at: None,
            notified_value: 0,
            notified_sample: None,
            version: 0,
            updated_at: now,
        }
    }

    /// Returns the labels as one line: `group=mailer topic=orders`.
    pub fn subject(&self) -> String {
        subject(&self.labels)
    }
}

/// Returns labels as one line: `group=mailer topic=orders`.
pub fn subject(labels: &AlertLabels) -> String {
    labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

/// Returns labels as a JSON object whose names are sorted.
pub(crate) fn labels_json(labels: &AlertLabels) -> String {
    serde_json::json!(labels).to_string()
}

/// A change of an alert, with the notices that are stored in the same transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertChange {
    /// The new state; its version is one above that of the stored state, or 1.
    pub alert: Alert,
    /// The channel and the kind of each notice.
    pub notices: Vec<(String, notice::NoticeKind)>,
}
