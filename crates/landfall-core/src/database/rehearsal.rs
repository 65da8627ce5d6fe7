//! Rehearsals: the handler of a dead letter runs in a transaction that is rolled back, so that a person learns what a
//! redrive would do.
//!
//! ```text
//!   request ─▶ waits ─(a consumer claims it)─▶ the handler runs, rollback ─▶ result
//!                ▲                                  │ crash, or too slow
//!                └───────── the claim expires ◀─────┘
//! ```
//!
//! The daemon and the consumer are different processes, so requests and results are rows.

use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;

use crate::{DeadLetterId, Error, GroupName, Message, MessageId, Result};

/// The id of a rehearsal.
pub type RehearsalId = MessageId;

/// What the handler of a letter did before it was rolled back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rehearsed {
    Succeeds,
    /// Its effect happened before.
    Duplicate,
    /// A newer version took effect before.
    Stale,
    /// An earlier message of its key has to take effect first.
    Blocked,
    Fails,
}

impl Rehearsed {
    pub const ALL: [Rehearsed; 5] = [Self::Succeeds, Self::Duplicate, Self::Stale, Self::Blocked, Self::Fails];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeds => "succeeds",
            Self::Duplicate => "duplicate",
            Self::Stale => "stale",
            Self::Blocked => "blocked",
            Self::Fails => "fails",
        }
    }
}

impl std::str::FromStr for Rehearsed {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let names = "succeeds, duplicate, stale, blocked, fails";
        let found = Self::ALL.into_iter().find(|outcome| outcome.as_str() == text);
        found.ok_or_else(|| Error::invalid(format!("rehearsal outcome {text:?} is none of {names}")))
    }
}

/// What became of one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RehearsalResult {
    pub outcome: Rehearsed,
    /// Why it would not take effect.
    pub error_code: Option<String>,
    pub error: Option<String>,
    /// That of the error. Equal to the letter's if it would fail as before.
    pub fingerprint: Option<String>,
}

impl From<Rehearsed> for RehearsalResult {
    fn from(outcome: Rehearsed) -> Self {
        Self { outcome, error_code: None, error: None, fingerprint: None }
    }
}

/// One letter of a rehearsal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RehearsedLetter {
    pub id: DeadLetterId,
    /// `None` until a consumer has run it.
    pub result: Option<RehearsalResult>,
}

/// A letter to rehearse, claimed by a consumer.
#[derive(Debug, Clone)]
pub struct RehearsalTask {
    pub rehearsal: RehearsalId,
    pub letter: DeadLetterId,
    pub message: Message,
    /// Failed attempts so far.
    pub attempts: u32,
    /// Grows with each claim. A result under an earlier one is not recorded.
    pub claim: i64,
}

/// Requests for rehearsals, and their results.
#[async_trait]
pub trait Rehearsals: Send + Sync {
    /// Asks the consumers of `letters` to rehearse them, on behalf of `actor`. Letters that are not parked, and those
    /// of the relay, which has no handler, are not part of it. Writes an audit row for each other letter.
    async fn request_rehearsal(&self, letters: &[DeadLetterId], actor: &str) -> Result<RehearsalId>;

    /// Returns the letters of a rehearsal, by id. Empty if there is none with this id; they are kept for a day.
    async fn rehearsal(&self, id: RehearsalId) -> Result<Vec<RehearsedLetter>>;

    /// Claims the oldest letter of `group` without a result for `lease`. Only letters that are still parked are
    /// returned, and only for ten minutes after the request.
    async fn claim_rehearsal(&self, group: &GroupName, lease: Duration) -> Result<Option<RehearsalTask>>;

    /// Records a result. Returns `false` and changes nothing if there is one, or if a later claim exists.
    async fn record_rehearsal(&self, task: &RehearsalTask, result: &RehearsalResult) -> Result<bool>;
}
