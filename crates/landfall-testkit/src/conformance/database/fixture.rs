//! What an adapter supplies to be tested: a database, a second way into it, and the few statements that the ports
//! cannot run because they know no SQL.

use std::time::Duration;

use landfall_core::{
    CompetingQueue, Database, DatabaseCapabilities, DeadLetters, Housekeeping, Inbox, Key, Leases, Message, MessageId,
    OutboxControl, OutboxQueue, OutboxView, OutboxWriter, Schema, Sequences, TopicName,
};

/// A database that implements every port.
pub trait WholeDatabase:
    OutboxWriter
    + OutboxQueue
    + CompetingQueue
    + OutboxView
    + OutboxControl
    + Inbox
    + Sequences
    + Leases
    + DeadLetters
    + Housekeeping
    + Schema
{
}

impl<D> WholeDatabase for D where
    D: OutboxWriter
        + OutboxQueue
        + CompetingQueue
        + OutboxView
        + OutboxControl
        + Inbox
        + Sequences
        + Leases
        + DeadLetters
        + Housekeeping
        + Schema
{
}

/// What a fixture's statements run on.
pub type Connection<F> = <<F as DatabaseFixture>::Database as Database>::Connection;

/// One new, empty database for one case. Its methods panic where a statement fails.
pub trait DatabaseFixture: Sized + Send + Sync + 'static {
    type Database: WholeDatabase;

    fn capabilities() -> DatabaseCapabilities;

    /// A new database without any tables. `None` if there is no server, after saying so with
    /// [`not_run`](crate::not_run).
    fn create() -> impl Future<Output = Option<Self>> + Send;

    /// Opens the database, without migrating it, with the default limits. Each call shares nothing with the others
    /// but the database itself: it stands for another process.
    fn open(&self) -> impl Future<Output = Self::Database> + Send;

    /// The same with sent messages kept for that long (`Options::keep_sent`).
    fn open_keeping_sent(&self, time: Duration) -> impl Future<Output = Self::Database> + Send;

    /// Makes the table `effects(message_id, key, sequence)`, without a unique constraint, so that a doubled effect
    /// would show. It needs a column of its own that keeps the order of insertion.
    fn create_effects(&self, connection: &mut Connection<Self>) -> impl Future<Output = ()> + Send;

    fn insert_effect(&self, connection: &mut Connection<Self>, effect: &Effect) -> impl Future<Output = ()> + Send;

    /// All effects in the order in which they were inserted.
    fn effects(&self, connection: &mut Connection<Self>) -> impl Future<Output = Vec<Effect>> + Send;

    /// The audit table, oldest first.
    fn audit(&self, connection: &mut Connection<Self>) -> impl Future<Output = Vec<AuditRow>> + Send;

    /// Gives every lease to somebody else under the next epoch, whoever holds it: half of a takeover, until it is
    /// committed.
    fn take_over_leases(&self, connection: &mut Connection<Self>) -> impl Future<Output = ()> + Send;

    /// Puts a row into the outbox, as a foreign writer would, whose headers cannot be a message's:
    /// `{"x": "a\nb"}`, a value with a line break.
    fn insert_unreadable(
        &self,
        connection: &mut Connection<Self>,
        topic: &TopicName,
        key: &Key,
    ) -> impl Future<Output = ()> + Send;
}

/// What a handler of the suite writes: one row per message that took effect.
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

/// One row of the audit table, as far as the suite asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    pub actor: String,
    pub action: String,
    pub message_id: MessageId,
}
