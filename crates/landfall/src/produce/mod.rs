//! Produce: a business change and its message commit together or not at all (P1–P4).
//!
//! There are three ways to enqueue a message. Each inserts one outbox row in the caller's transaction:
//!
//! * [`Outbox::enqueue`] with a transaction the caller began and [`Outbox::commit`]s;
//! * [`Outbox::execute_with_message`] and [`Outbox::execute`], which run a closure and the enqueue in one
//!   transaction;
//! * plain SQL from any language: `INSERT INTO landfall_outbox (topic, key, payload_text) VALUES (…)`.
//!
//! After the commit the relay is woken at once. The caller never publishes directly: it would overtake older messages
//! of the same key that are still pending.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
pub use landfall_core::Snowflake;
use landfall_core::{Error, Message, OutboxWriter, Result, TopicName};

/// Enqueues messages in the outbox of the service's own database.
///
/// ```
/// use landfall::prelude::*;
/// use landfall::sqlite::{self, Sqlite};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let database = Sqlite::open("sqlite::memory:", sqlite::Options::default()).await?;
/// database.migrate().await?;
/// # sqlx::query("CREATE TABLE orders (id TEXT)").execute(database.pool()).await?;
/// let outbox = Outbox::new(database.clone());
/// let message = Message::new(TopicName::new("orders")?, "order-1").with_key(Key::new("order-1")?);
/// outbox
///     .execute_with_message(message, async |connection| {
///         sqlx::query("INSERT INTO orders VALUES ('order-1')").execute(connection).await?;
///         Ok::<_, Box<dyn std::error::Error>>(())
///     })
///     .await?;
/// assert_eq!(database.stats().await?.pending, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Outbox<D> {
    database: D,
    /// Topics whose messages have Snowflake ids.
    snowflakes: HashMap<TopicName, Arc<Snowflake>>,
}

impl<D: OutboxWriter> Outbox<D> {
    /// Enqueues in the outbox of `database`.
    pub fn new(database: D) -> Self {
        Self { database, snowflakes: HashMap::new() }
    }

    /// Selects Snowflake ids for new messages of `topic`. Other topics have UUIDv7.
    ///
    /// A Snowflake fits into a `bigint` of the service's own tables: [`MessageId::as_snowflake`] returns it. Every
    /// process that produces needs its own node number; see [`Snowflake`].
    ///
    /// [`MessageId::as_snowflake`]: landfall_core::MessageId::as_snowflake
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use landfall::prelude::*;
    /// use landfall::produce::Snowflake;
    /// use landfall::sqlite::{self, Sqlite};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> landfall::Result<()> {
    /// # let database = Sqlite::open("sqlite::memory:", sqlite::Options::default()).await?;
    /// let orders = TopicName::new("orders")?;
    /// let ids = Arc::new(Snowflake::for_topic(3, 0)?);
    /// let outbox = Outbox::new(database).with_snowflakes(orders.clone(), ids);
    /// let message = outbox.message(orders, "order-1")?;
    /// assert!(message.id.as_snowflake().is_some());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_snowflakes(mut self, topic: TopicName, ids: Arc<Snowflake>) -> Self {
        self.snowflakes.insert(topic, ids);
        self
    }

    /// Creates a message with an id of the kind selected for `topic`, like [`Message::new`] otherwise.
    ///
    /// Fails only for Snowflake ids, with the kind `Unavailable`, while the clock is too far behind the last id.
    pub fn message(&self, topic: TopicName, payload: impl Into<Bytes>) -> Result<Message> {
        let id = self.snowflakes.get(&topic).map(|ids| ids.next()).transpose()?;
        let message = Message::new(topic, payload);
        Ok(match id {
            Some(id) => message.with_id(id),
            None => message,
        })
    }

    /// Enqueues `message` in the caller's transaction: it is published if and only if the transaction commits.
    ///
    /// Commit with [`Outbox::commit`], or otherwise and call [`Outbox::wake`]. Without a wake-up the relay finds the
    /// message at its next poll.
    pub async fn enqueue(&self, connection: &mut D::Connection, message: &Message) -> Result<()> {
        self.enqueue_all(connection, std::slice::from_ref(message)).await
    }

    /// Enqueues `messages` in this order, in one statement.
    pub async fn enqueue_all(&self, connection: &mut D::Connection, messages: &[Message]) -> Result<()> {
        self.database.enqueue(connection, messages).await
    }

    /// Begins a transaction on the service's database.
    pub async fn begin(&self) -> Result<D::Transaction> {
        self.database.begin().await
    }

    /// Commits and wakes the relay. An error of kind `Unknown` means that the connection was lost during the commit:
    /// check whether the change exists; if it does, so does its message.
    pub async fn commit(&self, transaction: D::Transaction) -> Result<()> {
        fail::fail_point!("produce.before-commit");
        let committed = self.database.commit(transaction).await;
        fail::fail_point!("produce.after-commit");
        self.wake();
        committed
    }

    /// Wakes the relay after a commit, so that it polls at once.
    pub fn wake(&self) {
        self.database.wake();
    }

    /// Runs `business` and enqueues `message` in one transaction. An error from either rolls both back.
    pub async fn execute_with_message<T, E, F>(&self, message: Message, business: F) -> Result<T, E>
    where
        F: AsyncFnOnce(&mut D::Connection) -> Result<T, E>,
        E: From<Error>,
    {
        let mut transaction = self.begin().await?;
        let value = business(&mut transaction).await?;
        self.commit_with(transaction, std::slice::from_ref(&message)).await?;
        Ok(value)
    }

    /// Like [`Outbox::execute_with_message`], for messages that only the business code can create.
    pub async fn execute<T, E, F>(&self, business: F) -> Result<T, E>
    where
        F: AsyncFnOnce(&mut D::Connection) -> Result<(T, Vec<Message>), E>,
        E: From<Error>,
    {
        let mut transaction = self.begin().await?;
        let (value, messages) = business(&mut transaction).await?;
        self.commit_with(transaction, &messages).await?;
        Ok(value)
    }

    /// Enqueues `messages` and commits `transaction`, like [`Outbox::enqueue_all`] and [`Outbox::commit`] in fewer
    /// round trips where the database allows it.
    pub async fn commit_with(&self, transaction: D::Transaction, messages: &[Message]) -> Result<()> {
        fail::fail_point!("produce.before-commit");
        let committed = self.database.enqueue_and_commit(transaction, messages).await;
        fail::fail_point!("produce.after-commit");
        self.wake();
        committed
    }
}
