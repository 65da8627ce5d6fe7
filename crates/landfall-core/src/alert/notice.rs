//! Notices: what is delivered to a channel, at least once and under a stable id.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{AlertId, AlertLabels};
use crate::{Alert, DeadLetterId, Error, MessageId, Result, Timestamp};

/// The id of a delivery. Every attempt has the same one, so that the receiver recognizes a repetition.
pub type NoticeBatchId = MessageId;

/// Whether an alert began or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoticeKind {
    Firing,
    Resolved,
}

impl NoticeKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Firing => "firing",
            Self::Resolved => "resolved",
        }
    }
}

impl std::str::FromStr for NoticeKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "firing" => Ok(Self::Firing),
            "resolved" => Ok(Self::Resolved),
            _ => Err(Error::invalid(format!("notice {text:?} is neither firing nor resolved"))),
        }
    }
}

/// Where a notice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeState {
    /// Not delivered yet.
    Waiting,
    Delivered,
    /// Refused for good, or not accepted for too long. Final.
    GivenUp,
}

impl NoticeState {
    pub const ALL: [NoticeState; 3] = [Self::Waiting, Self::Delivered, Self::GivenUp];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Delivered => "delivered",
            Self::GivenUp => "given_up",
        }
    }
}

impl std::str::FromStr for NoticeState {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let states = Self::ALL.into_iter().find(|state| state.as_str() == text);
        states.ok_or_else(|| Error::invalid(format!("state {text:?} is none of waiting, delivered, given_up")))
    }
}

/// What a notice says, as it was when the alert changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeBody {
    pub alert: AlertId,
    pub rule: String,
    pub kind: NoticeKind,
    pub labels: AlertLabels,
    pub value: u64,
    pub threshold: u64,
    pub summary: String,
    pub sample: Option<DeadLetterId>,
    pub starts_at: Timestamp,
    pub ends_at: Option<Timestamp>,
}

impl NoticeBody {
    pub fn new(alert: &Alert, kind: NoticeKind) -> Self {
        Self {
            alert: alert.id,
            rule: alert.rule.clone(),
            kind,
            labels: alert.labels.clone(),
            value: alert.value,
            threshold: alert.threshold,
            summary: alert.summary.clone(),
            sample: alert.sample,
            starts_at: alert.firing_since.unwrap_or(alert.updated_at),
            ends_at: alert.resolved_at.filter(|_| kind == NoticeKind::Resolved),
        }
    }
}

/// A notice in the delivery log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AlertNotice {
    pub id: MessageId,
    pub channel: String,
    pub state: NoticeState,
    #[serde(flatten)]
    pub body: NoticeBody,
    /// The delivery it is part of; `None` before the first attempt.
    pub delivery: Option<NoticeBatchId>,
    pub attempts: u32,
    pub next_attempt: Option<Timestamp>,
    pub created_at: Timestamp,
    pub settled_at: Option<Timestamp>,
    /// Why the last attempt failed.
    pub error: Option<String>,
}

/// Notices of one channel that are delivered together. Which ones is decided before the first attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticeBatch {
    pub id: NoticeBatchId,
    pub channel: String,
    /// With this attempt, so 1 at first.
    pub attempt: u32,
    /// When the oldest of them was made.
    pub created_at: Timestamp,
    /// In the order of the changes.
    pub notices: Vec<NoticeBody>,
}

/// Which notices to attempt next.
#[derive(Debug, Clone)]
pub struct NoticeClaim {
    pub channel: String,
    pub now: Timestamp,
    /// The most notices in one delivery.
    pub at_most: usize,
    /// The shortest time between two attempts on the channel.
    pub spacing: Duration,
    /// After this time without a result, the delivery is attempted again.
    pub patience: Duration,
}

/// The result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoticeOutcome {
    Delivered,
    /// Attempt this delivery again.
    Retry {
        at: Timestamp,
        error: String,
    },
    /// The channel accepts nothing before this time.
    Hold {
        until: Timestamp,
        error: String,
    },
    GivenUp {
        error: String,
    },
}
