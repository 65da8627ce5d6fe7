//! Enqueue in a `diesel-async` transaction, on its PostgreSQL connection.

use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel::sql_query;
use diesel::sql_types::{Array, BigInt, Binary, Nullable, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use landfall_core::{Error, ErrorKind, Limits, Message, Result, TablePrefix};

use crate::statement::{Columns, Statements, chunks, key};

/// The outbox of a service that uses `diesel-async`, alone or behind one of its pools.
#[derive(Debug, Clone)]
pub struct Outbox {
    statements: Statements,
}

impl Default for Outbox {
    fn default() -> Self {
        Self::new(&TablePrefix::default())
    }
}

impl Outbox {
    pub fn new(prefix: &TablePrefix) -> Self {
        Self { statements: Statements::new(prefix) }
    }

    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.statements.limits = limits;
        self
    }

    /// Enqueues `messages` in this order. Inside `connection.transaction(…)` they are published if and only if it
    /// commits. Outside a transaction each statement (500 messages) commits on its own.
    ///
    /// Refuses messages over the limits (kind `Invalid`, nothing written). Propagate the error: a transaction that
    /// ignores it would commit the change without its message.
    pub async fn enqueue(&self, connection: &mut AsyncPgConnection, messages: &[Message]) -> Result<()> {
        self.statements.check(messages)?;
        if let [message] = messages {
            return self.insert_one(connection, message).await;
        }
        for columns in chunks(messages) {
            self.insert(connection, columns).await?;
        }
        Ok(())
    }

    /// Wakes the relay after the commit. Only a hint: without it the next poll finds the message. Do not call it inside
    /// the transaction, where `NOTIFY` serialises the commits of the whole server.
    pub async fn wake(&self, connection: &mut AsyncPgConnection) -> Result<()> {
        let notify = sql_query("SELECT pg_notify($1, '')").bind::<Text, _>(&self.statements.channel);
        notify.execute(connection).await.map_err(translate("wake the relay"))?;
        Ok(())
    }

    async fn insert_one(&self, connection: &mut AsyncPgConnection, message: &Message) -> Result<()> {
        sql_query(&self.statements.one)
            .bind::<Text, _>(message.id.to_string())
            .bind::<Text, _>(message.topic.as_str())
            .bind::<Nullable<Text>, _>(key(message))
            .bind::<Nullable<BigInt>, _>(message.sequence)
            .bind::<Text, _>(message.kind.as_str())
            .bind::<Text, _>(message.mode.as_str())
            .bind::<Text, _>(message.headers.to_json())
            .bind::<Binary, _>(&message.payload[..])
            .bind::<BigInt, _>(message.time.as_millis())
            .execute(connection)
            .await
            .map_err(translate("put a message into the outbox"))?;
        Ok(())
    }

    async fn insert(&self, connection: &mut AsyncPgConnection, columns: Columns<'_>) -> Result<()> {
        sql_query(&self.statements.many)
            .bind::<Array<Text>, _>(columns.ids)
            .bind::<Array<Text>, _>(columns.topics)
            .bind::<Array<Nullable<Text>>, _>(columns.keys)
            .bind::<Array<Nullable<BigInt>>, _>(columns.sequences)
            .bind::<Array<Text>, _>(columns.kinds)
            .bind::<Array<Text>, _>(columns.modes)
            .bind::<Array<Text>, _>(columns.headers)
            .bind::<Array<Binary>, _>(columns.payloads)
            .bind::<Array<BigInt>, _>(columns.times)
            .execute(connection)
            .await
            .map_err(translate("put messages into the outbox"))?;
        Ok(())
    }
}

/// Diesel does not expose the SQLSTATE, so the kinds are coarser than elsewhere.
fn translate(what: &'static str) -> impl FnOnce(DieselError) -> Error {
    move |error| {
        let kind = match &error {
            DieselError::DatabaseError(kind, _) => match kind {
                DatabaseErrorKind::CheckViolation | DatabaseErrorKind::NotNullViolation => ErrorKind::Invalid,
                DatabaseErrorKind::UniqueViolation => ErrorKind::Conflict,
                DatabaseErrorKind::SerializationFailure
                | DatabaseErrorKind::ClosedConnection
                | DatabaseErrorKind::UnableToSendCommand => ErrorKind::Unavailable,
                _ => ErrorKind::Internal,
            },
            DieselError::BrokenTransactionManager => ErrorKind::Unavailable,
            _ => ErrorKind::Internal,
        };
        Error::new(kind, format!("PostgreSQL could not {what}")).with_source(error)
    }
}
