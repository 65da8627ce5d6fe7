//! Records: their states, how they are claimed and settled, and how people see them.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Epoch, IdentityKind, RecordId, Scope, Snapshot};
use crate::{Error, Result, Timestamp};

/// The state of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordState {
    /// A token that was issued and not consumed.
    Issued,
    /// An attempt is running, or crashed and its lease decides when another one may follow.
    InFlight,
    /// The work is done. A repeat gets the stored answer.
    Completed,
    /// The last attempt did nothing. The next claim runs again, also with another fingerprint.
    Released,
    /// Whether the work was done is unknown. A person resolves it, or its own attempt, if that was only slow.
    Uncertain,
}

/// What happens to work whose outcome is unknown: its process crashed, or it could not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnUnknown {
    /// The next claim runs it again. For work that tolerates it, such as calls with idempotency keys of their own.
    Rerun,
    /// It is parked until a person resolves it.
    Uncertain,
}

/// How an attempt holds its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How long the claim lasts without a renewal.
    pub lease: Duration,
    /// How long one attempt may last with all its renewals.
    pub ceiling: Duration,
    pub on_unknown: OnUnknown,
}

impl Terms {
    /// The default lease.
    pub const LEASE: Duration = Duration::from_secs(30);
    /// The default ceiling.
    pub const CEILING: Duration = Duration::from_secs(600);

    /// The default lease and ceiling.
    pub fn new(on_unknown: OnUnknown) -> Self {
        Self { lease: Self::LEASE, ceiling: Self::CEILING, on_unknown }
    }
}

/// The answer of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// The caller runs the work now, and settles it under this epoch.
    Claimed { epoch: Epoch },
    /// The work was done before.
    Completed(Snapshot),
    /// Another attempt holds the record for at most this long, unless it renews.
    InFlight { remaining: Duration },
    /// Another request used this key. Nothing was written.
    Mismatch,
    /// The outcome of an earlier attempt is unknown and waits for a person.
    Uncertain,
    /// Only for tokens: it was never issued for this business, or has expired.
    NotIssued,
}

/// The answer of [`RecordWriter::open_record`](super::RecordWriter::open_record).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opened {
    /// The record is in the caller's transaction. Run the work, store its answer, commit.
    Fresh,
    /// The work is not to be done; roll back. Never [`Claim::Claimed`].
    Refused(Claim),
}

/// What became of the work of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is done. Every repeat gets this answer.
    Done(Snapshot),
    /// Nothing happened that a repeat could double, so the key is free again.
    NothingDone,
    /// It may have been done. The text is the reason, for a person.
    Unknown(String),
}

/// The answer of a settle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// The outcome is recorded; also if this call repeats an earlier one.
    Recorded,
    /// The epoch is not current, and nothing was written. With the answer of the attempt that won, if it is done.
    Lost(Option<Snapshot>),
}

/// How a person resolves an uncertain record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// The work was done, and this is its answer.
    Done(Snapshot),
    /// The work was not done; the next claim runs it.
    Rerun,
}

/// A record as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordRow {
    pub id: RecordId,
    pub kind: IdentityKind,
    pub scope: Scope,
    pub business_type: String,
    pub key: String,
    pub state: RecordState,
    pub epoch: Epoch,
    pub on_unknown: OnUnknown,
    /// When the last attempt began, or the token was issued.
    pub claimed_at: Timestamp,
    pub updated_at: Timestamp,
    /// When the lease of an attempt, or an issued token, expires.
    pub expires_at: Option<Timestamp>,
    /// The status of the stored answer.
    pub status: Option<u16>,
    /// `kept`, `not_kept` or `expired`.
    pub body: Option<String>,
    pub body_bytes: Option<u64>,
    /// Why the outcome is unknown, or who resolved it.
    pub reason: Option<String>,
}

/// Selects records; every field that is set must match.
#[derive(Debug, Clone, Default)]
pub struct RecordFilter {
    pub id: Option<RecordId>,
    pub kind: Option<IdentityKind>,
    /// `Uncertain` includes crashed attempts whose lease expired under [`OnUnknown::Uncertain`].
    pub state: Option<RecordState>,
    pub scope: Option<Scope>,
    pub business_type: Option<String>,
    pub key: Option<String>,
    /// Only those claimed before this one: the last of the previous page.
    pub before: Option<(Timestamp, RecordId)>,
}

/// Counts of records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RecordStats {
    /// Attempts with a live lease, without time windows.
    pub in_flight: u64,
    /// Records that wait for a person.
    pub uncertain: u64,
    /// The age of the oldest uncertain one, in whole seconds; 0 without any.
    pub oldest_uncertain_seconds: u64,
}

impl RecordState {
    pub const ALL: [Self; 5] = [Self::Issued, Self::InFlight, Self::Completed, Self::Released, Self::Uncertain];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Issued => "issued",
            Self::InFlight => "in_flight",
            Self::Completed => "completed",
            Self::Released => "released",
            Self::Uncertain => "uncertain",
        }
    }
}

impl FromStr for RecordState {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            Error::invalid(format!("state {text:?} is none of issued, in_flight, completed, released, uncertain"))
        })
    }
}

impl OnUnknown {
    pub fn is_uncertain(self) -> bool {
        self == Self::Uncertain
    }
}

impl From<bool> for OnUnknown {
    /// Converts the column `parks` of a store.
    fn from(parks: bool) -> Self {
        if parks { Self::Uncertain } else { Self::Rerun }
    }
}

impl Resolution {
    /// Returns the action's name in the audit trail.
    pub fn action(&self) -> &'static str {
        match self {
            Self::Done(_) => "idempotency-complete",
            Self::Rerun => "idempotency-release",
        }
    }
}
