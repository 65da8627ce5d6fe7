//! Produce: the business change and its message commit together, or not at all (P1–P4).
//!
//! Three ways in, all ending in one row of the outbox inside the caller's transaction:
//!
//! * [`Outbox::enqueue`] with a transaction the caller began and [`Outbox::commit`]s;
//! * [`Outbox::execute_with_message`] and [`Outbox::execute`], which run a closure and the enqueue in one
//!   transaction;
//! * plain SQL from any language: `INSERT INTO landfall_outbox (topic, key, payload) VALUES (…)`.
//!
//! "Immediate send" means waking the relay at once after the commit. The request never sends by itself: that would
//! overtake older messages of the same key that are still waiting.

use landfall_core::{Error, Message, OutboxWriter, Result};

use futures_util::future::BoxFuture;

/// The sending side of a service, on its own database.
#[derive(Debug, Clone)]
pub struct Outbox<D> {
    database: D,
}

impl<D: OutboxWriter> Outbox<D> {
    pub fn new(database: D) -> Self {
        Self { database }
    }

    /// Enqueues `message` in the caller's transaction: it is published if and only if that commits.
    ///
    /// Commit with [`Outbox::commit`], or in any other way and call [`Outbox::wake`]; without either the relay finds
    /// the message at its next poll.
    pub async fn enqueue(&self, connection: &mut D::Connection, message: &Message) -> Result<()> {
        self.enqueue_all(connection, std::slice::from_ref(message)).await
    }

    /// Enqueues `messages` in this order, in one statement.
    pub async fn enqueue_all(&self, connection: &mut D::Connection, messages: &[Message]) -> Result<()> {
        self.database.enqueue(connection, messages).await
    }

    pub async fn begin(&self) -> Result<D::Transaction> {
        self.database.begin().await
    }

    /// Commits and wakes the relay. An error of kind `Unknown` means that the connection was lost under the commit:
    /// look whether the change is there; if it is, so is its message.
    pub async fn commit(&self, transaction: D::Transaction) -> Result<()> {
        fail::fail_point!("produce.before-commit");
        let committed = self.database.commit(transaction).await;
        fail::fail_point!("produce.after-commit");
        self.wake();
        committed
    }

    /// Says that something was committed, so that the relay looks at once.
    pub fn wake(&self) {
        self.database.wake();
    }

    /// Runs `business` and enqueues `message` in one transaction. An error from either rolls both back.
    pub async fn execute_with_message<T, E, F>(&self, message: Message, business: F) -> Result<T, E>
    where
        F: for<'t> FnOnce(&'t mut D::Connection) -> BoxFuture<'t, Result<T, E>> + Send,
        T: Send,
        E: From<Error>,
    {
        let mut transaction = self.begin().await?;
        let value = business(&mut transaction).await?;
        self.commit_with(transaction, std::slice::from_ref(&message)).await?;
        Ok(value)
    }

    /// As [`Outbox::execute_with_message`], for messages that are known only once the business code has run.
    pub async fn execute<T, E, F>(&self, business: F) -> Result<T, E>
    where
        F: for<'t> FnOnce(&'t mut D::Connection) -> BoxFuture<'t, Result<(T, Vec<Message>), E>> + Send,
        T: Send,
        E: From<Error>,
    {
        let mut transaction = self.begin().await?;
        let (value, messages) = business(&mut transaction).await?;
        self.commit_with(transaction, &messages).await?;
        Ok(value)
    }

    /// Enqueues `messages` as the last act of `transaction` and commits it, as [`Outbox::enqueue_all`] and
    /// [`Outbox::commit`] would, in fewer steps where the database has a shorter way.
    pub async fn commit_with(&self, transaction: D::Transaction, messages: &[Message]) -> Result<()> {
        fail::fail_point!("produce.before-commit");
        let committed = self.database.enqueue_and_commit(transaction, messages).await;
        fail::fail_point!("produce.after-commit");
        self.wake();
        committed
    }
}
