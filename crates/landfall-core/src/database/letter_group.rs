//! The port of failure groups: what people say about all dead letters with one fingerprint.

use async_trait::async_trait;
use serde::Serialize;

use crate::{Error, Result, Timestamp};

/// ```text
///   open ──▶ acknowledged, muted, resolved ──(reopen)──▶ open
///   muted ──(its time is over)──▶ open
///   resolved ──(a new dead letter)──▶ regressed ──▶ acknowledged, muted, resolved, open
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupState {
    #[default]
    Open,
    /// A person works on it.
    Acknowledged,
    /// A person does not want to hear of it until a time.
    Muted,
    /// A person repaired the cause.
    Resolved,
    /// It was resolved, and failed again.
    Regressed,
}

impl GroupState {
    pub const ALL: [GroupState; 5] = [Self::Open, Self::Acknowledged, Self::Muted, Self::Resolved, Self::Regressed];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Acknowledged => "acknowledged",
            Self::Muted => "muted",
            Self::Resolved => "resolved",
            Self::Regressed => "regressed",
        }
    }
}

impl std::str::FromStr for GroupState {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            Error::invalid(format!("state {text:?} is none of open, acknowledged, muted, resolved, regressed"))
        })
    }
}

/// What a person does with a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupChange {
    Acknowledge,
    Mute {
        until: Timestamp,
    },
    Resolve,
    Reopen,
    /// Replaces the note only; an empty one removes it.
    Note,
}

impl GroupChange {
    /// The action in the audit trail.
    pub fn action(self) -> &'static str {
        match self {
            Self::Acknowledge => "group-acknowledge",
            Self::Mute { .. } => "group-mute",
            Self::Resolve => "group-resolve",
            Self::Reopen => "group-reopen",
            Self::Note => "group-note",
        }
    }

    /// The state afterwards; `None` if it stays.
    pub fn state(self) -> Option<GroupState> {
        match self {
            Self::Acknowledge => Some(GroupState::Acknowledged),
            Self::Mute { .. } => Some(GroupState::Muted),
            Self::Resolve => Some(GroupState::Resolved),
            Self::Reopen => Some(GroupState::Open),
            Self::Note => None,
        }
    }
}

/// What people said about a group. A group of which nothing was said is open and has no note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GroupStatus {
    pub fingerprint: String,
    pub state: GroupState,
    pub muted_until: Option<Timestamp>,
    pub note: String,
}

/// Changes of failure groups. Every change writes an audit row in the same transaction.
#[async_trait]
pub trait LetterGroups: Send + Sync {
    /// Changes the state or the note of a group, on behalf of `actor`. An empty `note` keeps the old one, except for
    /// [`GroupChange::Note`]. A repetition changes nothing. Fails with kind `NotFound` if no dead letter has this
    /// fingerprint, and `Invalid` if a mute would end in the past.
    async fn change_group(
        &self,
        fingerprint: &str,
        change: GroupChange,
        note: &str,
        actor: &str,
    ) -> Result<GroupStatus>;
}
