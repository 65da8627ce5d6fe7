//! # Landfall: every message lands, once
//!
//! Landfall carries a change that one service commits to every other service: never lost, never applied twice, never
//! out of order, never stuck unnoticed. The modules follow the path of a message:
//!
//! 1. [`produce`]: enqueues a message in the transaction of the change it reports.
//! 2. [`relay`]: publishes committed messages to the broker, per key in order.
//! 3. [`consume`]: commits the handler's writes together with the record that the message was handled.
//! 4. [`retry`]: calls remote services with timeouts, retries, a retry budget and a circuit breaker.
//! 5. [`housekeeping`]: removes expired rows; its [`RetentionPlan`](housekeeping::RetentionPlan) computes how long
//!    ids are kept.
//!
//! [`idempotency`] makes APIs idempotent: one effect and one answer per request, however often it is sent.
//!
//! [`half`] and [`check_back`] are for a message that cannot be in the database of the change. It waits at a
//! coordinator until the verdict on a local transaction is known.
//!
//! [`import`] moves the rows of an existing outbox table into Landfall's own. [`history`] checks whether a run lost,
//! doubled, reordered or invented messages.
//!
//! The root has the names that services use; [`prelude`] has the most frequent ones. [`adapter`] has what the authors
//! of databases and brokers need.
//!
//! # Features
//!
//! | feature | brings |
//! |---|---|
//! | `sqlite`, `postgres`, `mysql` | the databases, as modules of those names |
//! | `log`, `kafka`, `nats`, `rabbitmq`, `redis`, `sqs` | the brokers, as modules of those names |
//! | `macros` | the attribute `#[idempotent]` |
//! | `axum` | [`idempotency`]'s layer for axum handlers |
//! | `redis-cache` | [`consume`]'s dedup cache and [`idempotency`] records in Redis |
//! | `tower` | tower layers around a handler |
//! | `tokio-postgres`, `diesel-async` | `stacks`: enqueue in transactions of those drivers |
//! | `failpoints` | crash points that tests can arm |
//!
//! No module of a step names an adapter.

mod call_deadline;
pub mod check_back;
pub mod consume;
mod dead_letter;
pub mod half;
pub mod housekeeping;
pub mod idempotency;
pub mod import;
pub mod prelude;
pub mod produce;
pub mod redrive;
pub mod relay;
pub mod retry;
mod supervised_task;

pub use landfall_core::{adapter, history};

// The message.
pub use landfall_core::{
    GroupName, HeaderName, Headers, Key, Kind, Limits, Message, MessageId, Mode, ProducerName, SystemHeader,
    TablePrefix, Timestamp, TopicName,
};
// Errors and failures.
pub use landfall_core::{Backoff, Error, ErrorCode, ErrorKind, Failure, Result, Verdict};
// The outbox and the dead letters, as people see them.
pub use landfall_core::{
    DeadLetter, DeadLetterFilter, DeadLetterId, DeadLetterStats, DeadLetterStatus, DeadLetters, Deliveries,
    DeliveryFilter, Discarded, OpenLetters, OutboxControl, OutboxDetail, OutboxFilter, OutboxRow, OutboxState,
    OutboxStats, OutboxView, Redriven, RetryingDelivery, RowId,
};
// Groups of dead letters, redrive jobs, rehearsals, the archive and the audit trail.
pub use landfall_core::{
    ArchivableLetters, ArchivedAudit, ArchivedLetter, AtLeast, AuditEntry, AuditFilter, AuditTrail, DeadLetterGroup,
    GroupChange, GroupState, GroupStatus, ImmediateRedrive, ImmediatelyRedriven, JobFailure, JobLetter, JobLetterState,
    KeyRule, KeyRuleKind, KeyRules, LetterGroups, PayloadPath, Predicted, Prediction, RedriveControl, RedriveCounts,
    RedriveGuards, RedriveId, RedriveJob, RedriveLane, RedriveOptions, RedriveQueue, RedriveRequest, RedriveSelection,
    RedriveStarted, RedriveState, Redrives, RehearsalId, RehearsalResult, Rehearsals, Rehearsed, RehearsedLetter,
    RestoredLetters, Skip, StopRule, TextSearch,
};
// Alerts.
pub use landfall_core::{
    ALERT_MEMORY, Alert, AlertChange, AlertCondition, AlertConditions, AlertFilter, AlertId, AlertKind, AlertLabels,
    AlertNotice, AlertObservations, AlertQueue, AlertRule, AlertState, Alerts, GroupQuery, LetterObservations,
    LetterQuery, MuteTarget, NoticeBatch, NoticeBatchId, NoticeBody, NoticeClaim, NoticeFilter, NoticeKind,
    NoticeOutcome, NoticeState, alert_conditions, evaluate_alerts, subject,
};
// Half messages.
pub use landfall_core::{
    AfterCheck, BarrierWriter, Barriers, CheckBack, Decided, DueCheck, HalfMessage, HalfMessageDetail,
    HalfMessageFilter, HalfMessageRow, HalfMessageStats, HalfMessages, HalfState, HalfVerdict, Prepared,
};
// Brokers.
pub use landfall_core::{
    Broker, Outcome, Position, Publisher, Refusal, StartAt, StoredMessage, TopicAdministration, TopicInfo, TopicReader,
};
// Databases: the ports that appear in bounds.
pub use landfall_core::{
    Appended, CompetingQueue, Constraints, Database, Fingerprint, Holder, Housekeeping, IdempotentAppend, Inbox,
    InboxView, Leases, OutboxQueue, OutboxWriter, Schema, Sequences,
};
// The doctor.
pub use landfall_core::{Diagnose, Finding, Rank};

#[cfg(feature = "kafka")]
pub use landfall_kafka as kafka;
#[cfg(feature = "log")]
pub use landfall_log as log;
#[cfg(feature = "mysql")]
pub use landfall_mysql as mysql;
#[cfg(feature = "nats")]
pub use landfall_nats as nats;
#[cfg(feature = "postgres")]
pub use landfall_postgres as postgres;
#[cfg(feature = "rabbitmq")]
pub use landfall_rabbitmq as rabbitmq;
#[cfg(feature = "redis")]
pub use landfall_redis as redis;
#[cfg(feature = "sqlite")]
pub use landfall_sqlite as sqlite;
#[cfg(feature = "sqs")]
pub use landfall_sqs as sqs;
#[cfg(any(feature = "diesel-async", feature = "tokio-postgres"))]
pub use landfall_stacks as stacks;

// Compiles and runs the program of the README, in both languages.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
#[cfg(doctest)]
#[doc = include_str!("../../../README.zh-CN.md")]
struct ReadmeInChinese;
