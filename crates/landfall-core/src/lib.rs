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
//!   [`DeadLetters`], [`Schema`], [`ImportSource`], [`Publisher`], [`Subscriber`](adapter::Subscriber), [`Broker`].

pub mod adapter;
mod admission;
mod backoff;
mod breaker;
mod broker;
mod broker_url;
mod budget;
mod clock_skew;
mod connection_epoch;
mod database;
mod dead_letter;
mod detach_on_drop;
mod error;
mod expected_tables;
mod failure;
mod file_system;
mod finding;
mod id;
mod import;
mod inbox;
mod lease;
mod limits;
mod message;
mod mode;
mod name;
mod outbox;
mod outcome;
mod retention;
mod retry_class;
mod retry_policy;
mod retry_window;
mod sequence;
mod snowflake;
mod span;
mod system_header;
mod timestamp;
pub mod wire;

pub use backoff::Backoff;
pub use breaker::{Breaker, BreakerOptions, BreakerState, Rejected, Ticket};
pub use broker::{Broker, Publisher, StartAt, StoredMessage, TopicAdministration, TopicInfo, TopicReader};
pub use budget::{Budget, BudgetOptions};
pub use database::{Constraints, Database, Schema};
pub use dead_letter::{
    DeadLetter, DeadLetterFilter, DeadLetterId, DeadLetterStats, DeadLetterStatus, DeadLetters, Redriven,
};
pub use error::{Error, ErrorKind, Result};
pub use failure::{ErrorCode, Failure, Verdict};
pub use finding::{Diagnose, Finding, Rank};
pub use id::MessageId;
pub use import::{ColumnName, HeaderColumn, ImportOrder, ImportSource, Mapping, TableName, Taken, TopicTemplate};
pub use inbox::{Inbox, InboxView};
pub use lease::{Holder, Leases};
pub use limits::Limits;
pub use message::{Headers, Kind, Message};
pub use mode::Mode;
pub use name::{GroupName, HeaderName, Key, ProducerName, TablePrefix, TopicName};
pub use outbox::{
    CompetingQueue, Housekeeping, OutboxControl, OutboxDetail, OutboxFilter, OutboxQueue, OutboxRow, OutboxState,
    OutboxStats, OutboxView, OutboxWriter, RowId,
};
pub use outcome::{Outcome, Position, Refusal};
pub use retention::{RetentionPlan, Retries, Window};
pub use retry_class::{Class, Repeat};
pub use retry_policy::{Failed, Jitter, RetryPolicy};
pub use sequence::Sequences;
pub use snowflake::Snowflake;
pub use span::Span;
pub use system_header::SystemHeader;
pub use timestamp::Timestamp;
