//! Enqueue in a `tokio-postgres` transaction.

use landfall_core::{Error, ErrorKind, Limits, Message, Result, TablePrefix};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Transaction};

use crate::statement::{Columns, Statements, chunks, key};

/// The outbox of a service that uses `tokio-postgres`, alone or behind a pool such as deadpool or bb8.
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

    /// Enqueues `messages` in this order, in one round trip. They are published if and only if `transaction` commits.
    ///
    /// Refuses messages over the limits (kind `Invalid`, nothing written). Do not commit after an error: the change
    /// would commit without its message. Uses no named prepared statements, so it works behind a pooler in transaction
    /// mode.
    pub async fn enqueue(&self, transaction: &Transaction<'_>, messages: &[Message]) -> Result<()> {
        self.statements.check(messages)?;
        if let [message] = messages {
            return self.insert_one(transaction, message).await;
        }
        for columns in chunks(messages) {
            self.insert(transaction, columns).await?;
        }
        Ok(())
    }

    /// Wakes the relay after the commit. Only a hint: without it the next poll finds the message. Do not call it inside
    /// the transaction, where `NOTIFY` serialises the commits of the whole server.
    pub async fn wake(&self, client: &Client) -> Result<()> {
        let channel: Value<'_> = (&self.statements.channel, Type::TEXT);
        client.execute_typed("SELECT pg_notify($1, '')", &[channel]).await.map_err(translate("wake the relay"))?;
        Ok(())
    }

    async fn insert_one(&self, transaction: &Transaction<'_>, message: &Message) -> Result<()> {
        let (id, headers) = (message.id.to_string(), message.headers.to_json());
        let values: [Value<'_>; 9] = [
            (&id, Type::TEXT),
            (&message.topic.as_str(), Type::TEXT),
            (&key(message), Type::TEXT),
            (&message.sequence, Type::INT8),
            (&message.kind.as_str(), Type::TEXT),
            (&message.mode.as_str(), Type::TEXT),
            (&headers, Type::TEXT),
            (&&message.payload[..], Type::BYTEA),
            (&message.time.as_millis(), Type::INT8),
        ];
        let inserted = transaction.execute_typed(&self.statements.one, &values).await;
        inserted.map_err(translate("put a message into the outbox"))?;
        Ok(())
    }

    async fn insert(&self, transaction: &Transaction<'_>, columns: Columns<'_>) -> Result<()> {
        let values: [Value<'_>; 9] = [
            (&columns.ids, Type::TEXT_ARRAY),
            (&columns.topics, Type::TEXT_ARRAY),
            (&columns.keys, Type::TEXT_ARRAY),
            (&columns.sequences, Type::INT8_ARRAY),
            (&columns.kinds, Type::TEXT_ARRAY),
            (&columns.modes, Type::TEXT_ARRAY),
            (&columns.headers, Type::TEXT_ARRAY),
            (&columns.payloads, Type::BYTEA_ARRAY),
            (&columns.times, Type::INT8_ARRAY),
        ];
        let inserted = transaction.execute_typed(&self.statements.many, &values).await;
        inserted.map_err(translate("put messages into the outbox"))?;
        Ok(())
    }
}

/// A parameter with its type, which saves the round trip that asks the server for it.
type Value<'a> = (&'a (dyn ToSql + Sync), Type);

fn translate(what: &'static str) -> impl FnOnce(tokio_postgres::Error) -> Error {
    move |error| {
        let kind = match error.code() {
            None => ErrorKind::Unavailable,
            Some(code) => match code.code() {
                // A failed transaction; a missing table, column or schema; a shutdown or deadlock.
                "25P02" => ErrorKind::Conflict,
                "42P01" | "42703" | "3F000" => ErrorKind::Schema,
                code if ["08", "40", "53", "57", "58"].iter().any(|class| code.starts_with(class)) => {
                    ErrorKind::Unavailable
                }
                code if ["22", "23", "42"].iter().any(|class| code.starts_with(class)) => ErrorKind::Invalid,
                _ => ErrorKind::Internal,
            },
        };
        Error::new(kind, format!("PostgreSQL could not {what}")).with_source(error)
    }
}
