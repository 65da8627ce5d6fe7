//! The vocabulary and the ports of Landfall.
//!
//! This crate does no I/O and needs no runtime. It defines the vocabulary ([`Message`], [`Key`], [`Outcome`]…) and the
//! ports: small traits that databases and brokers implement. Each method documents its promises about order, durability
//! and edge inputs. Every port has one conformance suite in `landfall-testkit`.
//!
//! There are two groups of ports:
//!
//! * **generic over the database**, because they take the caller's own transaction: [`Database`],
//!   [`OutboxWriter`], [`Inbox`];
//! * **`dyn`-safe**, because the daemon selects the adapter at run time: [`OutboxQueue`], [`OutboxView`], [`Leases`],
//!   [`DeadLetters`], [`Redrives`], [`Alerts`], [`Schema`], [`ImportSource`], [`Publisher`],
//!   [`Subscriber`](adapter::Subscriber), [`Broker`].
//!
//! [`history`] checks what was sent against what took effect: the tests, `landfall demo` and your own runs use it.

pub mod adapter;
mod alert;
mod broker;
mod database;
mod doctor;
mod error;
mod failure;
mod fingerprint;

pub mod history;
pub mod idempotency;
mod message;
mod redrive;
mod retry;
mod span;
mod timestamp;

pub use alert::condition::{AlertCondition, alert_conditions};
pub use alert::evaluate::{ALERT_MEMORY, AlertConditions, evaluate_alerts};
pub use alert::notice::{
    AlertNotice, NoticeBatch, NoticeBatchId, NoticeBody, NoticeClaim, NoticeKind, NoticeOutcome, NoticeState,
};
pub use alert::observation::{
    AlertObservations, GroupQuery, LetterObservations, LetterQuery, ObservedGroup, ParkedKey, ParkedLetters,
    RATE_BASELINE, RATE_WINDOW, RecordedLetters,
};
pub use alert::port::{AlertFilter, AlertQueue, Alerts, MuteTarget, NoticeFilter};
pub use alert::rule::{AlertKind, AlertRule};
pub use alert::{Alert, AlertChange, AlertId, AlertLabels, AlertState, subject};
pub use broker::outcome::{Outcome, Position, Refusal};
pub use broker::{Broker, Publisher, StartAt, StoredMessage, TopicAdministration, TopicInfo, TopicReader};
pub use database::archived_letter::{ArchivableLetters, ArchivedAudit, ArchivedLetter, RestoredLetters};
pub use database::audit::{AuditEntry, AuditFilter, AuditTrail};
pub use database::dead_letter::{
    AtLeast, DeadLetter, DeadLetterFilter, DeadLetterGroup, DeadLetterId, DeadLetterStats, DeadLetterStatus,
    DeadLetters, Discarded, OpenLetters, Redriven, TextSearch,
};
pub use database::delivery::{Deliveries, DeliveryFilter, RetryingDelivery};
pub use database::half_message::{
    AfterCheck, BarrierWriter, Barriers, CheckBack, Decided, DueCheck, HalfMessage, HalfMessageDetail,
    HalfMessageFilter, HalfMessageRow, HalfMessageStats, HalfMessages, HalfState, HalfVerdict, Prepared,
};
pub use database::housekeeping::{Expiring, Housekeeping};
pub use database::idempotent_append::{Appended, Fingerprint, IdempotentAppend};
pub use database::import::{
    ColumnName, HeaderColumn, ImportOrder, ImportSource, Mapping, TableName, Taken, TopicTemplate,
};
pub use database::inbox::{Inbox, InboxView};
pub use database::key_rule::{KeyRule, KeyRuleKind, KeyRules};
pub use database::lease::{Holder, Leases};
pub use database::letter_group::{GroupChange, GroupState, GroupStatus, LetterGroups};
pub use database::outbox::{
    CompetingQueue, OutboxControl, OutboxDetail, OutboxFilter, OutboxQueue, OutboxRow, OutboxState, OutboxStats,
    OutboxView, OutboxWriter, RowId,
};
pub use database::payload_path::PayloadPath;
pub use database::rehearsal::{RehearsalId, RehearsalResult, Rehearsals, Rehearsed, RehearsedLetter};
pub use database::retention::{RetentionPlan, Retries, Window};
pub use database::sequence::Sequences;
pub use database::{Constraints, Database, Schema};
pub use doctor::finding::{Diagnose, Finding, Rank};
pub use error::{Error, ErrorKind, Result};
pub use failure::{ErrorCode, Failure, Verdict};
pub use fingerprint::error_fingerprint;
pub use message::id::MessageId;
pub use message::limits::Limits;
pub use message::mode::Mode;
pub use message::name::{GroupName, HeaderName, Key, ProducerName, TablePrefix, TopicName};
pub use message::snowflake::Snowflake;
pub use message::system_header::SystemHeader;
pub use message::{Headers, Kind, Message, wire};
pub use redrive::guards::{Guarded, RedriveGuards, Skip};
pub use redrive::pace::{Ramp, TokenBucket};
pub use redrive::stop::StopRule;
pub use redrive::{
    ActiveRedrive, DispatchResult, ImmediateRedrive, ImmediatelyRedriven, JobFailure, JobLetter, JobLetterState,
    Predicted, Prediction, RedriveControl, RedriveCounts, RedriveId, RedriveJob, RedriveLane, RedriveOptions,
    RedriveQueue, RedriveRequest, RedriveSelection, RedriveStarted, RedriveState, Redrives,
};
pub use retry::backoff::Backoff;
pub use retry::breaker::{Breaker, BreakerOptions, BreakerState, Rejected, Ticket};
pub use retry::budget::{Budget, BudgetOptions};
pub use retry::class::{Class, Repeat};
pub use retry::policy::{Failed, Jitter, RetryPolicy};
pub use span::Span;
pub use timestamp::Timestamp;
