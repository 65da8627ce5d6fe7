//! What an adapter supplies: a new database, and the few SQL statements that the ports do not cover.

use std::time::Duration;

use landfall_core::adapter::DatabaseCapabilities;
use landfall_core::idempotency::{OneTimeTokens, RecordWriter};
use landfall_core::{
    AlertQueue, Alerts, AuditTrail, BarrierWriter, Barriers, CompetingQueue, Database, DeadLetters, HalfMessages,
    Housekeeping, IdempotentAppend, Inbox, Key, KeyRules, Leases, LetterGroups, Message, MessageId, OutboxControl,
    OutboxQueue, OutboxView, OutboxWriter, RedriveQueue, Redrives, Rehearsals, Schema, Sequences, TopicName,
};

/// A database that implements every port.
pub trait FullDatabase:
    OutboxWriter
    + OutboxQueue
    + IdempotentAppend
    + CompetingQueue
    + OutboxView
    + OutboxControl
    + Inbox
    + Sequences
    + Leases
    + DeadLetters
    + Redrives
    + RedriveQueue
    + Rehearsals
    + AuditTrail
    + Alerts
    + AlertQueue
    + LetterGroups
    + KeyRules
    + Housekeeping
    + HalfMessages
    + BarrierWriter
    + Barriers
    + RecordWriter
    + OneTimeTokens
    + Schema
{
}

impl<D> FullDatabase for D where
    D: OutboxWriter
        + OutboxQueue
        + IdempotentAppend
        + CompetingQueue
        + OutboxView
        + OutboxControl
        + Inbox
        + Sequences
        + Leases
        + DeadLetters
        + Redrives
        + RedriveQueue
        + Rehearsals
        + AuditTrail
        + Alerts
        + AlertQueue
        + LetterGroups
        + KeyRules
        + Housekeeping
        + HalfMessages
        + BarrierWriter
        + Barriers
        + RecordWriter
        + OneTimeTokens
        + Schema
{
}

/// The connection type of a fixture's database.
pub type Connection<F> = <<F as DatabaseFixture>::Database as Database>::Connection;

/// A new, empty database for one case. Methods panic if a statement fails.
pub trait DatabaseFixture: Sized + Send + Sync + 'static {
    type Database: FullDatabase;

    fn capabilities() -> DatabaseCapabilities;

    /// Creates a database without tables. Returns `None` without a server, after calling
    /// [`not_run`](crate::not_run()).
    fn create() -> impl Future<Output = Option<Self>> + Send;

    /// Opens the database with the default limits, without migrating it.
    ///
    /// Each call represents another process: the results share nothing but the database.
    fn open(&self) -> impl Future<Output = Self::Database> + Send;

    /// As [`DatabaseFixture::open`], with sent messages kept for `time` (`Options::keep_sent`).
    fn open_keeping_sent(&self, time: Duration) -> impl Future<Output = Self::Database> + Send;

    /// Creates the table `effects(message_id, key, sequence)` with an additional column for the insertion order.
    ///
    /// It has no unique constraint, so that doubled effects are visible.
    fn create_effects(&self, connection: &mut Connection<Self>) -> impl Future<Output = ()> + Send;

    fn insert_effect(&self, connection: &mut Connection<Self>, effect: &Effect) -> impl Future<Output = ()> + Send;

    /// Returns all effects in the order of insertion.
    fn effects(&self, connection: &mut Connection<Self>) -> impl Future<Output = Vec<Effect>> + Send;

    /// Returns the audit table, oldest row first.
    fn audit(&self, connection: &mut Connection<Self>) -> impl Future<Output = Vec<AuditRow>> + Send;

    /// Assigns every lease to another holder under the next epoch, regardless of the current one.
    ///
    /// The caller commits or rolls back, so that a case can test an uncommitted takeover.
    fn steal_leases(&self, connection: &mut Connection<Self>) -> impl Future<Output = ()> + Send;

    /// Makes every lease expire a day from now, as if the clock had been a day ahead when it was written.
    fn misdate_leases(&self, connection: &mut Connection<Self>) -> impl Future<Output = ()> + Send;

    /// Runs SQL text with `key` quoted as this database needs, without parameters. Returns the database's error.
    fn execute_text(
        &self,
        connection: &mut Connection<Self>,
        statement: &str,
    ) -> impl Future<Output = Result<(), String>> + Send;

    /// Statements that write rows into tables of schema version 1, as that version's relay left them.
    ///
    /// Key `a` has a pending row `a1`. Key `b` has a retrying row `b1` that is due, and `b2` behind it. Key `c` has a
    /// parked `c1`, and `c2` behind it. A payload equals the name. The lease `outbox/0` expires in a day.
    const VERSION_1_ROWS: &'static str;

    /// Inserts an outbox row with plain SQL whose headers are invalid: `{"x": "a\nb"}`, a value with a line break.
    fn insert_unreadable(
        &self,
        connection: &mut Connection<Self>,
        topic: &TopicName,
        key: &Key,
    ) -> impl Future<Output = ()> + Send;
}

/// The effect of a handler in the suite: one row per handled message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    pub message_id: MessageId,
    pub key: Option<String>,
    pub sequence: Option<i64>,
}

impl From<&Message> for Effect {
    fn from(message: &Message) -> Self {
        Self { message_id: message.id, key: message.key.as_ref().map(Key::to_string), sequence: message.sequence }
    }
}

/// The columns of an audit row that the suite checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    pub actor: String,
    pub action: String,
    pub message_id: MessageId,
}
