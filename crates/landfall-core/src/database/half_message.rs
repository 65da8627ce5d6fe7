//! The ports of half messages: what the coordinator stores, and the barrier in the business database.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{Database, Error, Fingerprint, Limits, Message, MessageId, Result, Timestamp, TopicName};

/// A message that waits for the verdict on a local transaction elsewhere. Its id is the id of the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HalfMessage {
    /// Published if and only if the verdict is [`HalfVerdict::Committed`].
    pub message: Message,
    /// What the local transaction is about, for the service that is asked: a type such as `order`, and an id.
    pub business_type: String,
    pub business_id: String,
    pub check_back: CheckBack,
    /// The immunity period: the first check-back happens this long after the prepare.
    pub check_after: Duration,
}

/// Where the coordinator asks for the verdict on an undecided message. Every target that is set is asked, in the order
/// of the fields, until one knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckBack {
    /// The name of a configured business database with a barrier table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    /// A URL, or `service:NAME/path` for the resolver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// A URL, or `service:NAME` for the resolver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<String>,
}

/// The decision about a half message. The first one is final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HalfVerdict {
    Committed,
    RolledBack,
}

/// ```text
///   prepared ──(commit)──▶ committed      enqueued in the outbox in the same transaction
///   prepared ──(rollback)──▶ rolled_back
///   prepared ──(check-back limit)──▶ parked ──(commit, rollback)──▶ committed, rolled_back
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HalfState {
    /// Undecided; the sender or a check-back decides.
    Prepared,
    /// Final. The message is in the outbox, or was.
    Committed,
    /// Final. The message is never published.
    RolledBack,
    /// Undecided after the last check-back; waits for a person, or for a late decision of the sender.
    Parked,
}

/// The answer of a prepare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prepared {
    /// Stored now. The state is `Prepared`, or final if the decision arrived first.
    Fresh(HalfState),
    /// Stored before, with the same fingerprint. Nothing was written.
    Repeated(HalfState),
    /// Another message was prepared under this id. Nothing was written.
    Conflict,
}

/// The answer of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decided {
    /// This call decided.
    Now,
    /// The same verdict was reached before. Nothing was written.
    Before,
    /// This call decided, and the message is not prepared yet. A later prepare finds the verdict.
    Early,
    /// The opposite verdict was reached before and stays. The contradiction is recorded.
    Contradiction(HalfVerdict),
}

/// An undecided message whose check-back is due, as a coordinator claimed it.
#[derive(Debug, Clone)]
pub struct DueCheck {
    pub half: HalfMessage,
    pub prepared_at: Timestamp,
    /// Check-backs so far, without this one.
    pub checks: u32,
}

/// What follows a check-back that did not decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterCheck {
    /// Ask again after this pause.
    Again(Duration),
    /// Park it for a person.
    Park,
}

/// A half message as operators see it. An early decision has no message yet.
#[derive(Debug, Clone, Serialize)]
pub struct HalfMessageRow {
    pub id: MessageId,
    pub state: HalfState,
    pub topic: Option<TopicName>,
    pub key: Option<String>,
    pub kind: Option<String>,
    pub business_type: String,
    pub business_id: String,
    pub check_back: CheckBack,
    pub prepared_at: Timestamp,
    pub decided_at: Option<Timestamp>,
    /// Who decided: `sender`, `check-back` or a person.
    pub decided_by: Option<String>,
    pub checks: u32,
    pub next_check: Option<Timestamp>,
    /// The answer of the last check-back that did not decide.
    pub last_answer: Option<String>,
    /// When the opposite verdict arrived, and from whom.
    pub contradicted_at: Option<Timestamp>,
    pub contradicted_by: Option<String>,
    /// When a person dealt with the contradiction, and who.
    pub acknowledged_at: Option<Timestamp>,
    pub acknowledged_by: Option<String>,
}

/// One complete half message, for an archive.
#[derive(Debug, Clone, Serialize)]
pub struct HalfMessageDetail {
    #[serde(flatten)]
    pub row: HalfMessageRow,
    pub sequence: Option<i64>,
    pub mode: Option<String>,
    /// The stored JSON object.
    pub headers: Option<serde_json::Value>,
    /// `None` for an early decision without a message.
    #[serde(skip)]
    pub payload: Option<Bytes>,
}

/// Selects half messages; every field that is set must match.
#[derive(Debug, Clone, Default)]
pub struct HalfMessageFilter {
    pub id: Option<MessageId>,
    pub state: Option<HalfState>,
    pub topic: Option<TopicName>,
    pub business_type: Option<String>,
    pub business_id: Option<String>,
    /// Only those that a later decision contradicts, acknowledged or not.
    pub contradicted: bool,
    /// Only those prepared before this one: the last of the previous page.
    pub before: Option<(Timestamp, MessageId)>,
}

/// Counts of half messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct HalfMessageStats {
    pub prepared: u64,
    pub parked: u64,
    /// Final ones that a later decision contradicts, without those that a person has acknowledged.
    pub contradicted: u64,
    /// Commits whose message was never prepared.
    pub early_commits: u64,
    /// The age of the oldest prepared or parked one, in whole seconds; 0 without any.
    pub oldest_undecided_seconds: u64,
}

/// The coordinator's storage. Every change of state writes an audit row in the same transaction.
///
/// All times are the database's. Every call is idempotent, so a caller may repeat one whose outcome is unknown.
#[async_trait]
pub trait HalfMessages: Send + Sync {
    /// Stores a message that stays invisible to consumers until it is committed. Durable before this returns.
    ///
    /// If a commit arrived first, the message is enqueued in the same transaction; if a rollback arrived first, it is
    /// stored as rolled back.
    async fn prepare(&self, half: &HalfMessage, fingerprint: &Fingerprint) -> Result<Prepared>;

    /// Decides about a message, on behalf of `actor`. The first verdict is final, also between concurrent callers.
    ///
    /// A commit enqueues the message in the outbox in the same transaction and wakes the relay. An unknown id is
    /// remembered as an early decision.
    async fn decide(&self, id: MessageId, verdict: HalfVerdict, actor: &str) -> Result<Decided>;

    /// Claims at most `limit` messages whose check-back is due, the longest due first. Another caller can claim them
    /// after `lease`, so that a crashed coordinator delays a check-back and never loses one.
    async fn claim_due(&self, limit: usize, lease: Duration) -> Result<Vec<DueCheck>>;

    /// Records a check-back that did not decide, and what follows. Ignored unless the message is still prepared with
    /// this number of earlier `checks`. `answer` is shortened to 500 characters. The audit row of a parking has the
    /// actor `check-back`.
    async fn record_check(&self, id: MessageId, checks: u32, answer: &str, after: AfterCheck) -> Result<()>;

    /// Records that `actor` has dealt with a contradiction. Returns whether an unacknowledged one was found.
    async fn acknowledge_contradiction(&self, id: MessageId, actor: &str) -> Result<bool>;

    /// Returns at most `limit` matching messages, the newest first.
    async fn find_half_messages(&self, filter: &HalfMessageFilter, limit: usize) -> Result<Vec<HalfMessageRow>>;

    async fn half_message_stats(&self) -> Result<HalfMessageStats>;
}

/// The barrier in the business database: one row per half message, in the local transaction.
///
/// A service in any language can write it: `INSERT INTO landfall_barrier (id) VALUES (…)`, with the id of the message.
pub trait BarrierWriter: Database {
    /// Marks the local transaction of half message `id` as committed, if and only if the caller's transaction commits.
    ///
    /// Fails with kind `Conflict` if a check-back has already decided that it was rolled back, or if the row exists.
    /// The caller must then roll back.
    fn enter_barrier(
        &self,
        connection: &mut Self::Connection,
        id: MessageId,
    ) -> impl Future<Output = Result<()>> + Send;
}

/// Asks the barrier for the verdict on a local transaction.
#[async_trait]
pub trait Barriers: Send + Sync {
    /// Returns `Committed` if the barrier row is committed. Otherwise inserts a tombstone, which makes a late local
    /// transaction fail, and returns `RolledBack` once the tombstone is durable.
    ///
    /// Returns `None` if that is unknown: the local transaction is still open after a short wait, or the connection may
    /// not write. Also if barrier rows as old as `prepared_at` were removed
    /// ([`Expiring::Barriers`](crate::Expiring::Barriers)). An error means unknown too.
    ///
    /// `prepared_at` is when the half message was prepared; the clocks of the two databases may differ by a day.
    async fn ask_barrier(&self, id: MessageId, prepared_at: Timestamp) -> Result<Option<HalfVerdict>>;

    /// Returns how long the oldest open transaction of the database has been running. `None` if there is none, or if
    /// the database or this account cannot tell. Fails if the barrier table cannot be read.
    async fn longest_transaction(&self) -> Result<Option<Duration>>;
}

impl HalfMessage {
    /// The longest business type and business id, in characters.
    pub const MAX_BUSINESS_CHARACTERS: usize = 250;
    /// The longest check-back target, in characters.
    pub const MAX_TARGET_CHARACTERS: usize = 2000;

    /// Refuses (kind `Invalid`) what a database would not store.
    pub fn check(&self, limits: &Limits) -> Result<()> {
        limits.check(&self.message)?;
        let CheckBack { database, http, grpc } = &self.check_back;
        let texts = [
            ("business_type", Some(&self.business_type), Self::MAX_BUSINESS_CHARACTERS),
            ("business_id", Some(&self.business_id), Self::MAX_BUSINESS_CHARACTERS),
            ("check_back.database", database.as_ref(), Self::MAX_TARGET_CHARACTERS),
            ("check_back.http", http.as_ref(), Self::MAX_TARGET_CHARACTERS),
            ("check_back.grpc", grpc.as_ref(), Self::MAX_TARGET_CHARACTERS),
        ];
        for (name, text, most) in texts {
            let Some(text) = text else { continue };
            if text.chars().count() > most {
                return Err(Error::invalid(format!("{name} is longer than {most} characters")));
            }
            if text.chars().any(char::is_control) {
                return Err(Error::invalid(format!("{name} contains a control character; remove it")));
            }
        }
        Ok(())
    }
}

impl CheckBack {
    pub fn is_empty(&self) -> bool {
        let Self { database, http, grpc } = self;
        database.is_none() && http.is_none() && grpc.is_none()
    }
}

impl HalfVerdict {
    /// Returns the action's name in the audit trail.
    pub fn action(self) -> &'static str {
        match self {
            Self::Committed => "half-commit",
            Self::RolledBack => "half-rollback",
        }
    }

    pub fn state(self) -> HalfState {
        match self {
            Self::Committed => HalfState::Committed,
            Self::RolledBack => HalfState::RolledBack,
        }
    }
}

impl HalfState {
    pub const ALL: [HalfState; 4] = [Self::Prepared, Self::Committed, Self::RolledBack, Self::Parked];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prepared => "prepared",
            Self::Committed => "committed",
            Self::RolledBack => "rolled_back",
            Self::Parked => "parked",
        }
    }

    pub fn verdict(self) -> Option<HalfVerdict> {
        match self {
            Self::Committed => Some(HalfVerdict::Committed),
            Self::RolledBack => Some(HalfVerdict::RolledBack),
            Self::Prepared | Self::Parked => None,
        }
    }
}

impl std::str::FromStr for HalfState {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            Error::invalid(format!("state {text:?} is none of prepared, committed, rolled_back, parked"))
        })
    }
}
