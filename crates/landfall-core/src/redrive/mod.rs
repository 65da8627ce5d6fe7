//! Redrive jobs: a frozen selection of dead letters that is redriven at a limited rate.
//!
//! ```text
//!   start ─▶ running ─▶ finished              every letter is settled
//!               │ ▲
//!         pause ▼ │ resume
//!             paused ─(stop)─▶ stopped        by a person, or by itself; the rest stays parked
//! ```
//!
//! Each letter of a job is in one state: it waits, is dispatched (handed back to its consumer or to the relay), or is
//! settled. It succeeded if its effect happened or the broker accepted it, not when it was handed back.

pub(crate) mod guards;
pub(crate) mod pace;
pub(crate) mod stop;

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::Serialize;

use crate::adapter::Epoch;
use crate::{DeadLetterFilter, DeadLetterId, Error, MessageId, Redriven, Result, Timestamp};

/// The id of a redrive job.
pub type RedriveId = MessageId;

/// Where a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RedriveState {
    Running,
    Paused,
    /// Ended by a person, or by itself. Letters in flight are still settled, the others stay parked. Final.
    Stopped,
    /// Every letter is settled. Final.
    Finished,
}

impl RedriveState {
    pub const ALL: [RedriveState; 4] = [Self::Running, Self::Paused, Self::Stopped, Self::Finished];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Finished => "finished",
        }
    }
}

impl std::str::FromStr for RedriveState {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let states = Self::ALL.into_iter().find(|state| state.as_str() == text);
        states.ok_or_else(|| Error::invalid(format!("state {text:?} is none of running, paused, stopped, finished")))
    }
}

/// How fast a job runs unless it says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RedriveLane {
    /// As fast as the consumers take the letters.
    Main,
    /// Behind live traffic: 50 letters a second, 16 of them in flight.
    #[default]
    Slow,
}

impl RedriveLane {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Slow => "slow",
        }
    }
}

impl std::str::FromStr for RedriveLane {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "main" => Ok(Self::Main),
            "slow" => Ok(Self::Slow),
            _ => Err(Error::invalid(format!("lane {text:?} is neither main nor slow"))),
        }
    }
}

/// How a job runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RedriveOptions {
    pub lane: RedriveLane,
    /// The most letters per second; `None` is without a limit.
    pub rate_per_s: Option<u32>,
    /// The most letters in flight.
    pub concurrency: u32,
    /// Whether it begins with 5 letters, then 1 %, then 10 %, and waits for the outcomes of each step.
    pub ramp: bool,
}

impl RedriveOptions {
    /// The largest values that are accepted.
    pub const MAX_RATE: u32 = 100_000;
    pub const MAX_CONCURRENCY: u32 = 10_000;

    pub fn new(lane: RedriveLane) -> Self {
        match lane {
            RedriveLane::Main => Self { lane, rate_per_s: None, concurrency: 256, ramp: true },
            RedriveLane::Slow => Self { lane, rate_per_s: Some(50), concurrency: 16, ramp: true },
        }
    }

    pub fn check(&self) -> Result<()> {
        if self.rate_per_s.is_some_and(|rate| !(1..=Self::MAX_RATE).contains(&rate)) {
            return Err(Error::invalid(format!("rate_per_s must be a number from 1 to {}", Self::MAX_RATE)));
        }
        if !(1..=Self::MAX_CONCURRENCY).contains(&self.concurrency) {
            return Err(Error::invalid(format!("concurrency must be a number from 1 to {}", Self::MAX_CONCURRENCY)));
        }
        Ok(())
    }
}

/// Which letters a job redrives. Letters that match later are not part of it.
#[derive(Debug, Clone)]
pub enum RedriveSelection {
    /// The matching letters; the parked ones unless the filter names a status. A filter without a condition is refused.
    Filter(Box<DeadLetterFilter>),
    /// These letters, whatever their status is.
    Ids(Vec<DeadLetterId>),
}

impl RedriveSelection {
    /// Refuses a selection without a condition, so that a forgotten one does not redrive everything.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Filter(filter) if filter.is_empty() => {
                Err(Error::invalid("the filter has no condition; select the dead letters to redrive"))
            }
            Self::Ids(ids) if ids.is_empty() => Err(Error::invalid("ids is empty; select the dead letters to redrive")),
            Self::Filter(_) | Self::Ids(_) => Ok(()),
        }
    }
}

/// A request for a job.
#[derive(Debug, Clone)]
pub struct RedriveRequest {
    pub selection: RedriveSelection,
    pub options: RedriveOptions,
    /// Why; kept in the audit trail.
    pub reason: String,
    /// The selection as JSON, for people; compared with that of a repeated request.
    pub shown: String,
    /// The id that the sender chose (`Idempotency-Key`). A repeated request is the same job.
    pub given: Option<MessageId>,
    /// How many letters the sender saw. If the selection has another number of them, nothing is stored.
    pub expected: Option<u64>,
}

/// A redrive that is done at once, without a job: in one transaction, without a rate, a ramp or a stop.
#[derive(Debug, Clone)]
pub struct ImmediateRedrive {
    /// The parked ones among the matching letters are redriven. Without a condition it selects every letter.
    pub filter: DeadLetterFilter,
    /// What a letter must pass. `None` for a person who names one letter: only its status counts.
    pub guards: Option<guards::RedriveGuards>,
    /// The most letters that are redriven, the oldest first.
    pub limit: Option<usize>,
    /// Why; kept in the audit trail.
    pub reason: String,
}

/// What became of the letters that an [`ImmediateRedrive`] matched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ImmediatelyRedriven {
    #[serde(flatten)]
    pub letters: Redriven,
    /// Why letters were skipped: the ids of each reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub reasons: BTreeMap<&'static str, Vec<DeadLetterId>>,
}

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedriveStarted {
    New(RedriveJob),
    /// The same request was accepted before.
    Repeated(RedriveJob),
    /// Another request was accepted under the same id. Nothing was written.
    Conflict(RedriveId),
}

/// How far a job is. `matched` is the sum of the others at every moment; letters in flight are among `remaining`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct RedriveCounts {
    pub matched: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub skipped: u64,
    /// No longer stored when their turn came.
    pub missing: u64,
    pub remaining: u64,
}

impl RedriveCounts {
    pub fn settled(&self) -> u64 {
        self.succeeded + self.failed + self.skipped + self.missing
    }
}

/// A job as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RedriveJob {
    pub id: RedriveId,
    pub state: RedriveState,
    #[serde(flatten)]
    pub counts: RedriveCounts,
    #[serde(flatten)]
    pub options: RedriveOptions,
    /// What was asked for: the filter or the ids.
    pub selection: serde_json::Value,
    pub actor: String,
    pub reason: String,
    /// Why it was stopped.
    pub stop_reason: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// Where a letter of a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JobLetterState {
    Waiting,
    /// Handed back, and not settled.
    Dispatched,
    Succeeded,
    Failed,
    Skipped,
    Missing,
}

impl JobLetterState {
    pub const ALL: [JobLetterState; 6] =
        [Self::Waiting, Self::Dispatched, Self::Succeeded, Self::Failed, Self::Skipped, Self::Missing];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Dispatched => "dispatched",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Missing => "missing",
        }
    }
}

impl std::str::FromStr for JobLetterState {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            let names = "waiting, dispatched, succeeded, failed, skipped, missing";
            Error::invalid(format!("state {text:?} is none of {names}"))
        })
    }
}

/// How a letter of a job failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JobFailure {
    /// With an error that a letter of the job had when it was selected.
    Same,
    /// With an error that none of them had.
    New,
}

impl JobFailure {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::New => "new",
        }
    }
}

/// A letter of a job, as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JobLetter {
    pub dead_letter_id: DeadLetterId,
    pub state: JobLetterState,
    /// Why it was skipped.
    pub skip: Option<String>,
    /// How it failed in this job; `None` unless it did, and if another action changed the letter first.
    pub failure: Option<JobFailure>,
    /// The fingerprint of the error that it failed with in this job.
    pub fingerprint: Option<String>,
    /// The fingerprint of its error when it was selected.
    pub selected_fingerprint: Option<String>,
}

/// A change of a job by a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedriveControl {
    Pause,
    Resume,
    Stop,
}

impl RedriveControl {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Stop => "stop",
        }
    }

    /// Returns the state that follows, if this is allowed. A repeated change is allowed and changes nothing.
    pub fn apply(self, state: RedriveState) -> Option<RedriveState> {
        use RedriveState::{Paused, Running, Stopped};
        match (self, state) {
            (Self::Pause, Running | Paused) => Some(Paused),
            (Self::Resume, Running | Paused) => Some(Running),
            (Self::Stop, Running | Paused | Stopped) => Some(Stopped),
            _ => None,
        }
    }
}

/// What a redrive would do with a letter now, as far as it is known without running its handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prediction {
    pub id: DeadLetterId,
    pub outcome: Predicted,
    /// The oldest open letter of its key in front of it.
    pub predecessor: Option<DeadLetterId>,
}

/// See [`Prediction`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Predicted {
    /// It would be handed back.
    Ready,
    /// It would wait for an earlier letter of its key, which is handled or selected as well.
    Waits,
    Skipped(guards::Skip),
    /// It is not stored.
    Missing,
}

impl Predicted {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Waits => "waits",
            Self::Skipped(skip) => skip.as_str(),
            Self::Missing => "missing",
        }
    }
}

/// Redrive jobs, as people start and control them. Every change writes an audit row in the same transaction.
#[async_trait]
pub trait Redrives: Send + Sync {
    /// Freezes the selection and stores the job, in one transaction. Nothing is redriven before a runner works on it.
    /// Fails with kind `Conflict` if the number of letters is not the expected one.
    async fn start_redrive(&self, request: &RedriveRequest, actor: &str) -> Result<RedriveStarted>;

    /// Predicts what a job with this selection would do with its first `limit` letters, and changes nothing.
    async fn rehearse_redrive(
        &self,
        selection: &RedriveSelection,
        guards: &guards::RedriveGuards,
        limit: usize,
    ) -> Result<Vec<Prediction>>;

    /// Returns at most `limit` jobs, the newest first; only those older than `before`.
    async fn redrive_jobs(&self, before: Option<RedriveId>, limit: usize) -> Result<Vec<RedriveJob>>;

    async fn redrive_job(&self, id: RedriveId) -> Result<Option<RedriveJob>>;

    /// Pauses, resumes or stops a job. After this returns, a paused or stopped job hands back no further letter. The
    /// audit trail keeps `reason`. Fails with kind `NotFound` without such a job, and `Conflict` if its state does not
    /// allow the change.
    async fn control_redrive_because(
        &self,
        id: RedriveId,
        control: RedriveControl,
        reason: &str,
        actor: &str,
    ) -> Result<RedriveJob>;

    /// As `control_redrive_because`, without a reason.
    async fn control_redrive(&self, id: RedriveId, control: RedriveControl, actor: &str) -> Result<RedriveJob> {
        self.control_redrive_because(id, control, "", actor).await
    }

    /// Redrives letters at once, in one transaction. Skips those that the guards refuse, and those behind a parked
    /// letter of their key that is not redriven as well.
    async fn redrive_at_once(&self, request: &ImmediateRedrive, actor: &str) -> Result<ImmediatelyRedriven>;

    /// Counts how often each reason occurred, of the letters that were skipped.
    async fn redrive_skips(&self, id: RedriveId) -> Result<Vec<(String, u64)>>;

    /// Returns at most `limit` letters of a job after the letter `after`, sorted by id; only those in `state` if given.
    async fn job_letters(
        &self,
        id: RedriveId,
        state: Option<JobLetterState>,
        after: Option<DeadLetterId>,
        limit: usize,
    ) -> Result<Vec<JobLetter>>;
}

/// A job that a runner has to work on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveRedrive {
    pub id: RedriveId,
    pub state: RedriveState,
    pub options: RedriveOptions,
    pub counts: RedriveCounts,
    /// Handed back and not settled.
    pub in_flight: u64,
}

impl ActiveRedrive {
    /// Letters that were handed back or skipped so far.
    pub fn begun(&self) -> u64 {
        self.counts.settled() + self.in_flight
    }
}

/// What a call to [`RedriveQueue::dispatch_redrive`] did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DispatchResult {
    pub dispatched: Vec<DeadLetterId>,
    /// Settled without being handed back: skipped or missing.
    pub settled: u64,
}

/// Redrive jobs, as their runner sees them. Each call is one transaction and does nothing under an outdated epoch
/// (kind `Conflict`).
#[async_trait]
pub trait RedriveQueue: Send + Sync {
    /// Returns the jobs that are running, and those that have letters in flight.
    async fn active_redrives(&self) -> Result<Vec<ActiveRedrive>>;

    /// Records the outcomes of letters in flight. Finishes the job if every letter is settled, and stops it if `rule`
    /// says so. Returns the job as it is now.
    async fn settle_redrive(&self, id: RedriveId, epoch: Epoch, rule: &stop::StopRule) -> Result<ActiveRedrive>;

    /// Hands back at most `limit` letters of a running job, the oldest first, and skips those that cannot be. A letter
    /// waits while an earlier one of its key is open.
    async fn dispatch_redrive(
        &self,
        id: RedriveId,
        epoch: Epoch,
        limit: usize,
        guards: &guards::RedriveGuards,
    ) -> Result<DispatchResult>;

    /// Removes jobs that ended and changed last before `before`, with their letters' outcomes: at most `at_most` rows
    /// in one call, the oldest jobs first. Returns how many. Their rows in the audit trail stay.
    async fn remove_redrives(&self, before: Timestamp, at_most: usize) -> Result<u64>;
}
