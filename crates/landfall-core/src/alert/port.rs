//! The ports of alerts.

use async_trait::async_trait;

use super::notice::{AlertNotice, NoticeBatch, NoticeClaim, NoticeOutcome, NoticeState};
use super::observation::{LetterObservations, LetterQuery};
use super::{AlertChange, AlertId, AlertState};
use crate::{Alert, MessageId, Result, Timestamp};

/// Selects alerts; every field that is set must match. Rows of whole rules match only their own state.
#[derive(Debug, Clone, Default)]
pub struct AlertFilter {
    pub id: Option<AlertId>,
    pub state: Option<AlertState>,
    pub rule: Option<String>,
}

/// Selects notices; every field that is set must match.
#[derive(Debug, Clone, Default)]
pub struct NoticeFilter {
    pub channel: Option<String>,
    pub state: Option<NoticeState>,
    /// Only notices made before this one: the last id of the previous page.
    pub before: Option<MessageId>,
}

/// What a person mutes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MuteTarget {
    Alert(AlertId),
    /// All alerts of a rule, present and future.
    Rule(String),
}

/// Alerts as people see and mute them.
#[async_trait]
pub trait Alerts: Send + Sync {
    /// Returns at most `limit` alerts, those that changed last first.
    async fn alerts(&self, filter: &AlertFilter, limit: usize) -> Result<Vec<Alert>>;

    /// Returns at most `limit` notices, the newest first.
    async fn alert_notices(&self, filter: &NoticeFilter, limit: usize) -> Result<Vec<AlertNotice>>;

    /// Mutes until a time, or ends a mute with a time that has passed. Writes an audit row in the same transaction.
    /// Fails with kind `NotFound` without such an alert.
    async fn mute_alert(&self, target: &MuteTarget, until: Timestamp, reason: &str, actor: &str) -> Result<()>;
}

/// Alerts as the daemon works with them.
#[async_trait]
pub trait AlertQueue: Send + Sync {
    /// Observes the dead letters. Errors without a fingerprint get one first.
    async fn observe_letters(&self, query: &LetterQuery) -> Result<LetterObservations>;

    /// Returns every pending and firing alert, every row of a whole rule, and those of `also` that exist.
    async fn open_alerts(&self, also: &[AlertId]) -> Result<Vec<Alert>>;

    /// Stores all changes with their notices, or nothing. Fails with kind `Conflict` if one of the alerts changed since
    /// it was read, so that two daemons with the same change make one notice.
    async fn record_alerts(&self, changes: &[AlertChange], now: Timestamp) -> Result<()>;

    /// Begins the next attempt on a channel, durably: a delivery that is due, else a new one of waiting notices. A
    /// notice waits for earlier ones of its alert. `None` if nothing is due, or the channel must rest. Of two
    /// concurrent calls at most one gets a delivery; the other may fail with kind `Conflict`.
    async fn claim_notices(&self, claim: &NoticeClaim) -> Result<Option<NoticeBatch>>;

    /// Records the outcome of an attempt. Returns false, and changes nothing, if a later attempt has begun.
    async fn settle_notices(&self, batch: &NoticeBatch, outcome: &NoticeOutcome, now: Timestamp) -> Result<bool>;

    /// Removes resolved alerts and settled notices that changed last before a time; at most about `at_most` of each.
    /// Returns how many rows it removed.
    async fn remove_alerts(&self, before: Timestamp, at_most: usize) -> Result<u64>;
}
